/* AdviseSplit: what the compute stream's time of a step goes into, and how fast each part goes. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

/* Of one kind of work. */
typedef struct
{
  gint64 ns;           /* beside what runs with it */
  double flops, bytes; /* computed, and read or written, meanwhile */
  double peak_flop_ns; /* that its products would take at the rate of the data sheet */
} AdviseWork;

typedef struct
{
  AdviseWork work[PLAN_N_WORKS]; /* but for what is computed again */
  AdviseWork recomputed;         /* of whatever kind */
  double memory_bytes_per_s;     /* of the device, by its data sheet */
} AdviseSplit;

/* Adds up to the time that the compute stream is busy. `node_ns`: what the ops of each node took;
 * `costs`: what they alone are made of. */
void advise_split_init (AdviseSplit *self, const SimCostInput *costs, const SimCost *cost,
                        const gint64 *node_ns);

/* How fast it goes, by the limit that it is nearer to: arithmetic or memory. */
typedef struct
{
  gboolean is_arithmetic;
  double per_s;       /* FLOP or bytes; 0: does neither */
  double of_peak_pct; /* below 0: the data sheet has no such rate */
} AdvisePace;

AdvisePace advise_split_pace (const AdviseSplit *self, const AdviseWork *work);

/* Its parts that take any time: PLAN_N_WORKS kinds, then what is recomputed; NULL at the end. */
const AdviseWork *advise_split_next (const AdviseSplit *self, guint *index, const char **out_key,
                                     const char **out_name);

G_END_DECLS
