/* AdviseTraining: the time and cost of a training run over a number of tokens. */
#pragma once
#include "advise/input.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  double tokens, price; /* USD per device and hour; each is 0 where it was not given */
  double goodput;       /* share of the time in which the run makes progress */
  double days, gpu_hours, cost;
} AdviseTraining;

/* Reads --tokens, --price and --goodput as typed, each NULL where absent. */
gboolean advise_training_init (AdviseTraining *self, const char *tokens, const char *price,
                               const char *goodput, const AdviseInput *input, GError **error);

/* Computes days, GPU hours and cost. */
void advise_training_take (AdviseTraining *self, double tokens_per_s_per_device, gint64 devices);

/* Parses "2e12", "15T", "300B" or "50M". */
gboolean advise_training_parse_tokens (const char *text, double *out_tokens, GError **error);

/* Parses "0.9" or "90%": above 0, at most 1. NULL is 1. */
gboolean advise_training_parse_goodput (const char *text, double *out_goodput, GError **error);

/* What the time of steps alone leaves out, NULL-terminated; and a sentence on how much of it a
 * goodput covers, which the caller frees. */
const char *const *advise_training_left_out (void);
char *advise_training_describe (double goodput);

/* Parses "14d", "36h" or "90m" into seconds. */
gboolean advise_training_parse_duration (const char *text, double *out_seconds, GError **error);

/* Whether a cluster that is asked about has a price, and every name in the list is known. */
gboolean advise_training_check_price (const char *text, const AdviseInput *const *inputs, guint n,
                                      GError **error);

/* The price of one of this cluster's devices per hour, from "2.5" or
 * "dgx-h100=2.5,dgx-a100=1.4". */
gboolean advise_training_find_price (const char *text, const AdviseInput *input, double *out_price,
                                     GError **error);

G_END_DECLS
