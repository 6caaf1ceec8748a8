/* AdviseSplit: the time of the compute stream in a step by kind of work, and the rate of each
 * kind. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

/* One kind of work: GEMMs, attention and so on. */
typedef struct
{
  gint64 ns;           /* its time beside the communication that overlaps it */
  double flops, bytes; /* arithmetic, and memory read and written, in that time */
  double peak_flop_ns; /* time that its GEMMs would take at the data sheet's peak rate */
} AdviseWork;

typedef struct
{
  AdviseWork work[PLAN_N_WORKS]; /* without recompute */
  AdviseWork recomputed;         /* all recompute, whatever its kind */
  double memory_bytes_per_s;     /* from its data sheet */
} AdviseSplit;

/* Fills in a split, whose parts add up to the busy time of the compute stream. `node_ns` has the
 * times of each node's ops as they ran beside others; `costs` is the input from which their costs
 * alone were made. */
void advise_split_init (AdviseSplit *self, const SimCostInput *costs, const SimCost *cost,
                        const gint64 *node_ns);

/* The rate of one kind of work, by the limit that it is closer to: arithmetic or memory. */
typedef struct
{
  gboolean is_arithmetic;
  double per_s;       /* FLOP or bytes; 0: it has neither */
  double of_peak_pct; /* below 0: the data sheet has no such rate */
} AdvisePace;

AdvisePace advise_split_pace (const AdviseSplit *self, const AdviseWork *work);

/* The next part that takes any time: the PLAN_N_WORKS kinds, then recompute; NULL at the end. */
const AdviseWork *advise_split_next (const AdviseSplit *self, guint *index, const char **out_key,
                                     const char **out_name);

G_END_DECLS
