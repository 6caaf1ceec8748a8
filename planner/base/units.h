/* Sizes, rates and counts as text, and arithmetic that refuses to overflow. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_MIB G_GUINT64_CONSTANT (1048576)
#define PLAN_GIB G_GUINT64_CONSTANT (1073741824)

/* Reads "72GiB", "80GB", "512MiB", "1024" (bytes). `what` names the thing, for the error. */
gboolean plan_units_parse_size (const char *text, const char *what, guint64 *out_bytes,
                                GError **error);

/* Reads an integer in [min, max], in decimal digits without exponent or suffix. */
gboolean plan_units_parse_int (const char *text, const char *what, gint64 min, gint64 max,
                               gint64 *out_value, GError **error);

/* Reads a finite decimal number in [min, max], whatever the locale. */
gboolean plan_units_parse_real (const char *text, const char *what, double min, double max,
                                double *out_value, GError **error);

/* The same for a share, with a % behind it or none: "0.5" and "0.5%" are both 0.5. */
gboolean plan_units_parse_percent (const char *text, const char *what, double min, double max,
                                   double *out_value, GError **error);

/* Reads a measured amount: 0, or from 1e-6 to 1e15, for which an error in percent is finite. */
gboolean plan_units_parse_amount (const char *text, const char *what, double *out_value,
                                  GError **error);

/* 436273152 -> "416.1 MiB"; the caller frees. */
char *plan_units_format_size (guint64 bytes);

/* 1421000 ns -> "1.421 ms"; the caller frees. */
char *plan_units_format_time (gint64 ns);

/* 5.234e14 -> "523.4 TFLOP/s", 6.61e9 -> "6.6 GFLOP/s"; the caller frees. */
char *plan_units_format_flops (double flops_per_s);

/* Shortest decimal that reads back as the same double, with no locale; the caller frees. */
char *plan_units_format_real (double value);

/* a * b; overflow is an INVALID error that names `what`. */
gboolean plan_units_mul (guint64 a, guint64 b, const char *what, guint64 *out, GError **error);

guint64 plan_units_round_up (guint64 value, guint64 multiple);

/* The greatest common divisor of two numbers that are not negative; that of 0 and b is b. */
gint64 plan_units_gcd (gint64 a, gint64 b);

G_END_DECLS
