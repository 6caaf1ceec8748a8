/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/training.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <string.h>

#define LEAST 1e-6 /* least value of quantities that must be above 0 */

gboolean
advise_training_parse_duration (const char *text, double *out_seconds, GError **error)
{
  static const struct
  {
    char unit;
    double seconds;
  } units[] = { { 'd', 86400 }, { 'h', 3600 }, { 'm', 60 }, { 's', 1 } };
  const gsize length = strlen (text);
  for (guint i = 0; length > 1 && i < G_N_ELEMENTS (units); i++)
    if (text[length - 1] == units[i].unit)
      {
        g_autofree char *number = g_strndup (text, length - 1);
        double value;
        if (!plan_units_parse_real (number, "--deadline", LEAST, 1e9, &value, error))
          return FALSE;
        *out_seconds = value * units[i].seconds;
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--deadline: %s is not a duration such as 14d, 36h or 90m", shown);
  return FALSE;
}

gboolean
advise_training_parse_tokens (const char *text, double *out_tokens, GError **error)
{
  static const char suffixes[] = "KMBT";
  static const double scale[] = { 1e3, 1e6, 1e9, 1e12 };
  const gsize length = strlen (text);
  const char *suffix = length > 1 ? strchr (suffixes, g_ascii_toupper (text[length - 1])) : NULL;
  g_autofree char *number = g_strndup (text, length - (suffix ? 1 : 0));
  if (!plan_units_parse_real (number, "--tokens", LEAST, 1e18, out_tokens, error))
    return FALSE;
  *out_tokens *= suffix ? scale[suffix - suffixes] : 1;
  if (*out_tokens >= 1)
    return TRUE;
  g_autofree char *shown = plan_text_quote (text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--tokens: %s is not one token", shown);
  return FALSE;
}

static gboolean
is_called (const AdviseInput *input, const char *name)
{
  return g_strcmp0 (name, input->cluster_spec) == 0 || strcmp (name, input->cluster->name) == 0
         || strcmp (name, input->cluster->device_name) == 0;
}

static gboolean
refuse_price (const char *name, const AdviseInput *const *inputs, guint n, GError **error)
{
  g_autoptr (GString) asked = g_string_new (NULL);
  for (guint i = 0; i < n; i++)
    if (i == 0 || strcmp (inputs[i]->cluster->name, inputs[i - 1]->cluster->name) != 0)
      g_string_append_printf (asked, "%s%s", i ? ", " : "", inputs[i]->cluster->name);
  g_autofree char *shown = plan_text_quote (name);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--price: %s is no cluster that is asked about: these are %s", shown, asked->str);
  return FALSE;
}

gboolean
advise_training_check_price (const char *text, const AdviseInput *const *inputs, guint n,
                             GError **error)
{
  g_auto (GStrv) parts = g_strsplit (text, ",", -1);
  gboolean is_of_use = FALSE;
  g_autofree char *other = NULL;
  for (char **p = parts; *p; p++)
    {
      const char *equals = strrchr (*p, '=');
      g_autofree char *name = equals ? g_strndup (*p, (gsize)(equals - *p)) : NULL;
      gboolean is_asked = name == NULL;
      for (guint i = 0; i < n && !is_asked; i++)
        is_asked = is_called (inputs[i], name);
      if (!is_asked
          && !plan_cluster_is_shipped (name)) /* a list may have more names than are asked about */
        return refuse_price (name, inputs, n, error);
      is_of_use |= is_asked;
      if (!is_asked && !other)
        other = g_steal_pointer (&name);
    }
  return is_of_use || refuse_price (other, inputs, n, error);
}

gboolean
advise_training_find_price (const char *text, const AdviseInput *input, double *out_price,
                            GError **error)
{
  g_auto (GStrv) parts = g_strsplit (text ? text : "", ",", -1);
  *out_price = 0;
  if (text && !*parts)
    return plan_units_parse_real (text, "--price", LEAST, 1e6, out_price, error);
  for (char **p = parts; *p; p++)
    {
      const char *equals = strrchr (*p, '=');
      g_autofree char *name = equals ? g_strndup (*p, (gsize)(equals - *p)) : NULL;
      double price;
      if (!plan_units_parse_real (equals ? equals + 1 : *p, "--price", LEAST, 1e6, &price, error))
        return FALSE;
      if (!name && parts[1])
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "--price: write one price for all, or CLUSTER=USD for each");
          return FALSE;
        }
      if (!name || is_called (input, name))
        *out_price = price;
    }
  return TRUE;
}

gboolean
advise_training_parse_goodput (const char *text, double *out_goodput, GError **error)
{
  const gsize length = text ? strlen (text) : 0;
  const gboolean is_percentage = length > 0 && text[length - 1] == '%';
  g_autofree char *number = g_strndup (text ? text : "1", length - is_percentage);
  double goodput = 1;
  if (text && !plan_units_parse_real (number, "--goodput", 0, 1e300, &goodput, error))
    return FALSE;
  goodput /= is_percentage ? 100 : 1;
  if (!(goodput > 0 && goodput <= 1))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--goodput: '%s' is no share of the time: above 0 and at most 1, as 0.9 or 90%%",
                   text);
      return FALSE;
    }
  *out_goodput = goodput;
  return TRUE;
}

const char *const *
advise_training_left_out (void)
{
  static const char *const left_out[]
      = { "checkpoints", "evaluation", "failures", "restarts", "stragglers", NULL };
  return left_out;
}

char *
advise_training_describe (double goodput)
{
  g_autofree char *left_out = g_strjoinv (", ", (char **)advise_training_left_out ());
  return goodput < 1
             ? g_strdup_printf ("%.4g %% of the time trains (--goodput), the rest goes to %s",
                                100 * goodput, left_out)
             : g_strdup_printf ("steps alone, without %s: --goodput 0.9 would leave a tenth of the "
                                "time for them",
                                left_out);
}

gboolean
advise_training_init (AdviseTraining *self, const char *tokens, const char *price,
                      const char *goodput, const AdviseInput *input, GError **error)
{
  *self = (AdviseTraining){ .goodput = 1 };
  if ((price || goodput) && !tokens)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--%s: --tokens is needed, too: how many the run trains on",
                   price ? "price" : "goodput");
      return FALSE;
    }
  return advise_training_parse_goodput (goodput, &self->goodput, error)
         && (!tokens || advise_training_parse_tokens (tokens, &self->tokens, error))
         && (!price
             || (advise_training_find_price (price, input, &self->price, error)
                 && advise_training_check_price (price, &input, 1, error)));
}

void
advise_training_take (AdviseTraining *self, double tokens_per_s_per_device, gint64 devices)
{
  const double device_s = self->tokens / tokens_per_s_per_device / self->goodput;
  self->days = device_s / (double)devices / 86400;
  self->gpu_hours = device_s / 3600;
  self->cost = self->gpu_hours * self->price;
}
