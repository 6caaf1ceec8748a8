/* Uncertainty of a prediction: the probability that a plan fits in memory, and the error of its
 * time.
 *
 * Both rest on errors of runs that were left out of the fit, which a set of parameters records. */
#pragma once
#include "advise/input.h"
#include "planner/case/case.h"
#include "planner/plan/stack.h"
#include "sim/cost/uncertainty.h"
#include <glib.h>
G_BEGIN_DECLS

/* The scale of errors of device memory: a share of all of it, and a share of the part that comes
 * and goes within a step. */
typedef struct
{
  gboolean is_known; /* known, and both shares 0: bytes are exact */
  double whole, passing;
} AdviseMemoryError;

/* The scale for a stack on a cluster's devices, by `set` or, where that is NULL or has none, by the
 * shipped set. On processors bytes are exact. */
AdviseMemoryError advise_memory_error (const SimAdjustments *set, const PlanCluster *cluster,
                                       const PlanStack *stack);

/* The probability that a plan fits into `limit` bytes, if it is predicted to take `device` bytes,
 * of which `resting` stay between steps. Below 0: unknown. */
double advise_p_fits (const AdviseMemoryError *error, guint64 device, guint64 resting,
                      guint64 limit);

#define ADVISE_P_FITS 0.95 /* the default probability with which a plan must fit */

/* Parses --p-fits: a share, or per cent with the sign; NULL is ADVISE_P_FITS. At least 0.5, since a
 * plan below that is predicted not to fit. */
gboolean advise_p_fits_parse (const char *text, double *out_p, GError **error);

/* advise_needed_bytes gives the memory that a device must have for a plan to fit with probability
 * `p` (at least 0.5); it is no less than the predicted bytes, and monotone in them.
 * advise_takable_bytes is the inverse: the most bytes that a plan may be predicted to take on a
 * device with `needed` bytes. Both return their argument where errors are unknown. */
guint64 advise_needed_bytes (const AdviseMemoryError *error, double p, guint64 device,
                             guint64 resting);
guint64 advise_takable_bytes (const AdviseMemoryError *error, double p, guint64 needed,
                              guint64 resting);

/* The unusual modes of a plan that its time may depend on, one word each. */
char **advise_modes (const Plan *resolved);

/* The network bandwidth of each device in Gbit/s; 0 within one node. */
gint64 advise_network (const PlanCluster *cluster);

/* The share of a step in which communication is exposed. */
double advise_exposed_share (gint64 step_ns, gint64 tensor_ns, gint64 gather_ns, gint64 reduce_ns);

/* The error, in per cent, within which eight of ten such times lie, and the number of groups of
 * runs behind it. Below 0: unknown. `source` is who ran it (advise_run_source); NULL: somebody of
 * whom nothing was seen. `out_unlike`, if any, gets what few or none of those runs had
 * (sim_uncertainty_unlike); the caller frees it. */
SimErrorRange advise_time_uncertainty (const SimAdjustments *set, const PlanCase *of,
                                       const char *source, double exposed_share, char **out_unlike);

G_END_DECLS
