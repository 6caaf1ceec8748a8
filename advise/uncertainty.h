/* How sure a prediction is: whether a plan's memory will do, and how far its time may be off.
 *
 * Both by what runs that were not fitted to have shown, as a set of parameters says it. */
#pragma once
#include "advise/input.h"
#include "planner/plan/stack.h"
#include "sim/cost/uncertainty.h"
#include <glib.h>
G_BEGIN_DECLS

/* Scale of errors of device memory, as shares: of all of it, and of what of it does not stay
 * between steps. */
typedef struct
{
  gboolean is_known; /* both 0 where it is: bytes are exact */
  double whole, passing;
} AdviseMemoryError;

/* Of a stack on a cluster's devices, by `set` or, where that says nothing of memory (or is NULL),
 * by the shipped one. On processors a run takes what is predicted. */
AdviseMemoryError advise_memory_error (const SimAdjustments *set, const PlanCluster *cluster,
                                       const PlanStack *stack);

/* Probability that a plan fits into `limit` bytes that is predicted to take so many on the device,
 * of them so many between steps, too; below 0: not known. */
double advise_p_fits (const AdviseMemoryError *error, guint64 device, guint64 resting,
                      guint64 limit);

#define ADVISE_P_FITS 0.95 /* how surely a plan is to fit, unless said */

/* What --p-fits says: a share, or with its sign per cent; NULL: ADVISE_P_FITS. From 0.5 up, as
 * below a half a plan is predicted not to fit. */
gboolean advise_p_fits_parse (const char *text, double *out_p, GError **error);

/* What there has to be for it to fit with probability `p`, from 0.5 up: never less than it is
 * predicted to take, and never less for more. The other way round: the most that it may take, where
 * there is so much. Where nothing is known of errors, the same. */
guint64 advise_needed_bytes (const AdviseMemoryError *error, double p, guint64 device,
                             guint64 resting);
guint64 advise_takable_bytes (const AdviseMemoryError *error, double p, guint64 needed,
                              guint64 resting);

/* The modes of a plan beyond the usual, on which its time may depend, in a word each. */
char **advise_modes (const Plan *resolved);

/* Gbit/s of the network of each device; 0 within one node. */
gint64 advise_network (const PlanCluster *cluster);

/* Share of a step in which communication is all that goes on. */
double advise_exposed_share (gint64 step_ns, gint64 tensor_ns, gint64 gather_ns, gint64 reduce_ns);

/* Per cent that four of five such times lie within, and the groups of runs that this rests on;
 * below 0: not known. */
SimErrorRange advise_time_uncertainty (const SimAdjustments *set, const PlanCluster *cluster,
                                       const PlanStack *stack, const Plan *resolved,
                                       double exposed_share);

G_END_DECLS
