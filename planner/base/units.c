/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/units.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct
{
  const char *name;
  guint64 bytes;
} SizeUnit;

static const SizeUnit size_units[] = {
  { "", 1 },
  { "B", 1 },
  { "kB", 1000 },
  { "MB", 1000000 },
  { "GB", 1000000000 },
  { "TB", G_GUINT64_CONSTANT (1000000000000) },
  { "KiB", 1024 },
  { "MiB", PLAN_MIB },
  { "GiB", PLAN_GIB },
  { "TiB", 1024 * PLAN_GIB },
};

static gboolean G_GNUC_PRINTF (4, 5)
    refuse (GError **error, const char *what, const char *text, const char *format, ...)
{
  g_autofree char *shown = plan_text_quote (text);
  va_list args;
  va_start (args, format);
  g_autofree char *reason = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s %s", what, shown, reason);
  return FALSE;
}

static gsize
count_digits (const char *text)
{
  gsize n = 0;
  while (g_ascii_isdigit (text[n]))
    n++;
  return n;
}

/* Length of "12", "12.5" at the start of the text; 0 if it does not start with a number. */
static gsize
scan_decimal (const char *text)
{
  const gsize whole = count_digits (text);
  if (whole == 0 || text[whole] != '.')
    return whole;
  const gsize fraction = count_digits (text + whole + 1);
  return fraction == 0 ? 0 : whole + 1 + fraction;
}

gboolean
plan_units_parse_size (const char *text, const char *what, guint64 *out_bytes, GError **error)
{
  const gsize digits = scan_decimal (text);
  const char *unit = text + digits;
  if (digits > 0 && *unit == ' ')
    unit++;
  const SizeUnit *found = NULL;
  for (guint i = 0; i < G_N_ELEMENTS (size_units) && !found; i++)
    if (g_str_equal (unit, size_units[i].name))
      found = &size_units[i];
  if (digits == 0 || !found || unit[0] == ' ' || (*unit == '\0' && unit != text + digits))
    return refuse (error, what, text,
                   "is not a size: write for example 512MiB, 79.1 GiB, 80 GB "
                   "or a number of bytes");

  errno = 0;
  const guint64 whole = g_ascii_strtoull (text, NULL, 10);
  guint64 bytes;
  if (errno == ERANGE || __builtin_mul_overflow (whole, found->bytes, &bytes))
    return refuse (error, what, text, "does not fit 64 bits");
  const char *const point = memchr (text, '.', digits);
  if (point)
    {
      g_autofree char *fraction = g_strndup (point, (gsize)(text + digits - point));
      const double part = g_ascii_strtod (fraction, NULL) * (double)found->bytes;
      if (found->bytes == 1)
        return refuse (error, what, text, "is not a size: bytes come whole");
      if (__builtin_add_overflow (bytes, (guint64)(part + 0.5), &bytes))
        return refuse (error, what, text, "does not fit 64 bits");
    }
  *out_bytes = bytes;
  return TRUE;
}

static gboolean
refuse_int (GError **error, const char *what, const char *text, const char *wrong, gint64 min,
            gint64 max)
{
  if (max == G_MAXINT64)
    return refuse (error, what, text, "%s: it must be %" G_GINT64_FORMAT " or more", wrong, min);
  return refuse (error, what, text, "%s: it must be from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT,
                 wrong, min, max);
}

gboolean
plan_units_parse_int (const char *text, const char *what, gint64 min, gint64 max, gint64 *out_value,
                      GError **error)
{
  const char *const digits = text + (*text == '-');
  const gsize n = count_digits (digits);
  if (n == 0 || digits[n] != '\0')
    return refuse_int (error, what, text, "is not a whole number in decimal digits", min, max);
  errno = 0;
  const gint64 value = g_ascii_strtoll (text, NULL, 10);
  if (errno == ERANGE)
    return refuse_int (error, what, text, "does not fit 64 bits", min, max);
  if (value < min || value > max)
    return refuse_int (error, what, text, "is out of range", min, max);
  *out_value = value;
  return TRUE;
}

/* Length of [-]digits[.digits][e[+-]digits]; 0 if the text does not start with one. */
static gsize
scan_real (const char *text)
{
  const gsize sign = *text == '-';
  gsize n = scan_decimal (text + sign);
  if (n == 0)
    return 0;
  n += sign;
  if (text[n] != 'e' && text[n] != 'E')
    return n;
  const gsize mark = n + 1 + (text[n + 1] == '+' || text[n + 1] == '-');
  const gsize digits = count_digits (text + mark);
  return digits == 0 ? 0 : mark + digits;
}

gboolean
plan_units_parse_real (const char *text, const char *what, double min, double max,
                       double *out_value, GError **error)
{
  const gsize n = scan_real (text);
  if (n == 0 || text[n] != '\0')
    return refuse (error, what, text, "is not a decimal number such as 0.25 or 1e-05");
  const double value = g_ascii_strtod (text, NULL);
  if (!isfinite (value))
    return refuse (error, what, text, "is too large for a double");
  if (value < min || value > max)
    {
      g_autofree char *least = plan_units_format_real (min);
      g_autofree char *most = plan_units_format_real (max);
      return refuse (error, what, text, "is out of range: it must be from %s to %s", least, most);
    }
  *out_value = value;
  return TRUE;
}

gboolean
plan_units_parse_amount (const char *text, const char *what, double *out_value, GError **error)
{
  double value;
  if (!plan_units_parse_real (text, what, 0, 1e15, &value, error))
    return FALSE;
  if (value > 0 && value < 1e-6)
    return refuse (error, what, text, "is out of range: it must be 0 or from 1e-06 to 1e+15");
  *out_value = value;
  return TRUE;
}

gboolean
plan_units_parse_percent (const char *text, const char *what, double min, double max,
                          double *out_value, GError **error)
{
  const gsize length = strlen (text);
  g_autofree char *number = g_strndup (text, length - (g_str_has_suffix (text, "%") ? 1 : 0));
  return plan_units_parse_real (number, what, min, max, out_value, error);
}

static char *
format_scaled (double value, const char *format, const char *unit)
{
  char digits[G_ASCII_DTOSTR_BUF_SIZE];
  return g_strconcat (g_ascii_formatd (digits, sizeof digits, format, value), " ", unit, NULL);
}

char *
plan_units_format_size (guint64 bytes)
{
  static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
  if (bytes < 1024)
    return g_strdup_printf ("%" G_GUINT64_FORMAT " B", bytes);
  double value = (double)bytes / 1024;
  guint unit = 0;
  for (; value >= 1023.95 && unit + 1 < G_N_ELEMENTS (units); unit++)
    value /= 1024;
  return format_scaled (value, "%.1f", units[unit]);
}

char *
plan_units_format_time (gint64 ns)
{
  static const char *const units[] = { "us", "ms", "s" };
  if (ns > -1000 && ns < 1000)
    return g_strdup_printf ("%" G_GINT64_FORMAT " ns", ns);
  double value = (double)ns / 1000;
  guint unit = 0;
  for (; fabs (value) >= 999.9995 && unit + 1 < G_N_ELEMENTS (units); unit++)
    value /= 1000;
  return format_scaled (value, "%.3f", units[unit]);
}

char *
plan_units_format_flops (double flops_per_s)
{
  static const struct
  {
    double flops_per_s;
    const char *name;
  } units[] = { { 1e12, "TFLOP/s" }, { 1e9, "GFLOP/s" }, { 1e6, "MFLOP/s" } };
  guint i = 0;
  while (i + 1 < G_N_ELEMENTS (units) && flops_per_s < units[i].flops_per_s)
    i++;
  char digits[G_ASCII_DTOSTR_BUF_SIZE];
  g_ascii_formatd (digits, sizeof digits, "%.1f", flops_per_s / units[i].flops_per_s);
  return g_strdup_printf ("%s %s", digits, units[i].name);
}

char *
plan_units_format_real (double value)
{
  char digits[G_ASCII_DTOSTR_BUF_SIZE];
  if (fabs (value) < 1e15 && value == floor (value))
    return g_strdup (g_ascii_formatd (digits, sizeof digits, "%.0f", value));
  for (int precision = 1; precision <= 17; precision++)
    {
      char format[8];
      g_snprintf (format, sizeof format, "%%.%dg", precision);
      g_ascii_formatd (digits, sizeof digits, format, value);
      if (g_ascii_strtod (digits, NULL) == value)
        break;
    }
  return g_strdup (digits);
}

gboolean
plan_units_mul (guint64 a, guint64 b, const char *what, guint64 *out, GError **error)
{
  guint64 product;
  if (__builtin_mul_overflow (a, b, &product))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: %" G_GUINT64_FORMAT " times %" G_GUINT64_FORMAT " does not fit 64 bits",
                   what, a, b);
      return FALSE;
    }
  *out = product;
  return TRUE;
}

guint64
plan_units_round_up (guint64 value, guint64 multiple)
{
  g_return_val_if_fail (multiple > 0, value);
  const guint64 rest = value % multiple;
  return rest == 0 ? value : value + (multiple - rest);
}

gint64
plan_units_gcd (gint64 a, gint64 b)
{
  return b == 0 ? a : plan_units_gcd (b, a % b);
}
