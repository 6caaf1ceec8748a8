/* AdviseSplit: the compute stream's time of a step by kind of work, and the rate of each kind. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

/* One kind of work: GEMMs, attention and so on. */
typedef struct
{
  gint64 ns;           /* as long as it takes beside the communication that overlaps it */
  double flops, bytes; /* arithmetic, and memory read and written, in that time */
  double peak_flop_ns; /* the time of its GEMMs at the peak rate of the data sheet */
} AdviseWork;

typedef struct
{
  AdviseWork work[PLAN_N_WORKS]; /* without recompute */
  AdviseWork recomputed;         /* all recompute, whatever its kind */
  double memory_bytes_per_s;     /* of the device, by its data sheet */
} AdviseSplit;

/* The parts add up to the time in which the compute stream is busy. `node_ns` is the time of the
 * ops of each node, as they ran beside others; `costs` are the inputs of their costs alone. */
void advise_split_init (AdviseSplit *self, const SimCostInput *costs, const SimCost *cost,
                        const gint64 *node_ns);

/* The rate of one kind of work against the limit that it is nearer to: arithmetic or memory. */
typedef struct
{
  gboolean is_arithmetic;
  double per_s;       /* FLOP or bytes; 0: does neither */
  double of_peak_pct; /* below 0: the data sheet has no such rate */
} AdvisePace;

AdvisePace advise_split_pace (const AdviseSplit *self, const AdviseWork *work);

/* The next part that takes any time: PLAN_N_WORKS kinds, then recompute; NULL at the end. */
const AdviseWork *advise_split_next (const AdviseSplit *self, guint *index, const char **out_key,
                                     const char **out_name);

G_END_DECLS
