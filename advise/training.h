/* AdviseTraining: what a training run of so many tokens takes. */
#pragma once
#include "advise/input.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  double tokens, price; /* USD per device and hour; each 0 where it was not told */
  double goodput;       /* share of the time in which the run trains */
  double days, gpu_hours, cost;
} AdviseTraining;

/* From --tokens, --price and --goodput as typed, each NULL where absent. */
gboolean advise_training_init (AdviseTraining *self, const char *tokens, const char *price,
                               const char *goodput, const AdviseInput *input, GError **error);

/* Computes the rest. */
void advise_training_take (AdviseTraining *self, double tokens_per_s_per_device, gint64 devices);

/* "2e12", "15T", "300B", "50M". */
gboolean advise_training_parse_tokens (const char *text, double *out_tokens, GError **error);

/* "0.9" or "90%": above 0, at most 1; 1 where it is NULL. */
gboolean advise_training_parse_goodput (const char *text, double *out_goodput, GError **error);

/* What steps alone leave out, NULL-terminated; and in a sentence what such a time has of it, which
 * the caller frees. */
const char *const *advise_training_left_out (void);
char *advise_training_describe (double goodput);

/* "14d", "36h", "90m": seconds. */
gboolean advise_training_parse_duration (const char *text, double *out_seconds, GError **error);

/* Whether a cluster that is asked about has a price, and no name in the list is unknown. */
gboolean advise_training_check_price (const char *text, const AdviseInput *const *inputs, guint n,
                                      GError **error);

/* "2.5", or "dgx-h100=2.5,dgx-a100=1.4": what a device of this cluster costs an hour. */
gboolean advise_training_find_price (const char *text, const AdviseInput *input, double *out_price,
                                     GError **error);

G_END_DECLS
