/* SPDX-License-Identifier: Apache-2.0 */
/* Models by their text: what is printed reads back as the same model; its parameters and FLOPs are
 * those of its tensors. The loop's index is the seed. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/model/model.h"
#include "tests/prop/same-model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define N_SEEDS 300

static gint64
up_to (GRand *rand, gint32 max)
{
  return g_rand_int_range (rand, 1, max + 1);
}

static char *
random_value (GRand *rand, const PlanModelKey *key)
{
  switch (key->kind)
    {
    case PLAN_MODEL_KEY_INT:
      return g_strdup_printf ("%d", g_rand_int_range (rand, 0, 12));
    case PLAN_MODEL_KEY_REAL:
      {
        char digits[G_ASCII_DTOSTR_BUF_SIZE];
        const double value = pow (10, g_rand_double_range (rand, -6, 1));
        return g_strdup (g_rand_boolean (rand)
                             ? g_ascii_formatd (digits, sizeof digits, "%.2g", value)
                             : g_ascii_dtostr (digits, sizeof digits, value));
      }
    case PLAN_MODEL_KEY_LIST:
      return g_strdup (g_rand_boolean (rand) ? "1.5" : "");
    case PLAN_MODEL_KEY_PATTERN:
      return g_strdup ("M*-");
    case PLAN_MODEL_KEY_FLAG:
    case PLAN_MODEL_KEY_WORD:
      break;
    }
  g_auto (GStrv) words = g_strsplit (key->values, " ", -1);
  return g_strdup (words[g_rand_int_range (rand, 0, (gint32)g_strv_length (words))]);
}

/* A family, its dimensions and a few properties that may or may not go together. There are more
 * layers than the three that are dense in deepseek_v3, and heads of latent attention are as wide as
 * the family's nope_dim and rope_dim together. */
static void
append_pattern (GString *spec, GRand *rand, gint64 layers)
{
  g_string_append (spec, ",pattern=M");
  for (gint64 i = 1; i < layers; i++)
    g_string_append_c (spec, "MM*--"[g_rand_int_range (rand, 0, 5)]);
}

static char *
random_spec (GRand *rand)
{
  const char *const *families = plan_model_families ();
  const char *family
      = families[g_rand_int_range (rand, 0, (gint32)g_strv_length ((GStrv)families))];
  const gint64 kv_heads = up_to (rand, 8), heads = kv_heads * up_to (rand, 8);
  const gboolean is_latent = strstr (family, "deepseek") || g_str_equal (family, "kimi_k2")
                             || g_str_equal (family, "glm4_moe_lite");
  guint n;
  const PlanModelKey *keys = plan_model_keys (&n);
  GString *spec = g_string_new (NULL);
  const gint64 layers = up_to (rand, 100) + 3;
  g_string_printf (spec,
                   "layers=%d,hidden=%d,ffn=%d,heads=%d,kv_heads=%d,head_dim=%d,vocab=%d,"
                   "max_seq=%d,family=%s",
                   (int)layers, (int)up_to (rand, 20000), (int)up_to (rand, 60000), (int)heads,
                   (int)(is_latent ? heads : kv_heads),
                   !is_latent                ? 2 * (int)up_to (rand, 128)
                   : strstr (family, "lite") ? 256
                                             : 192,
                   (int)up_to (rand, 200000), (int)up_to (rand, 1000000), family);
  if (g_str_equal (family, "nemotron_h"))
    append_pattern (spec, rand, layers);
  guint first = 8; /* the keys before it are those above */
  for (gint64 changes = up_to (rand, 5) - 1; changes > 0 && first < n; changes--)
    {
      first += (guint)g_rand_int_range (rand, 0, (gint32)(n - first));
      g_autofree char *value = random_value (rand, &keys[first]);
      g_string_append_printf (spec, ",%s=%s", keys[first++].name, value);
    }
  return g_string_free (spec, FALSE);
}

/* The same of layers by a pattern, letter by letter. A state space's width counts as twice the
 * model's, and its scan as seven FLOPs for each column and state. */
static void
assert_flops_of_pattern (const PlanModel *m, int seed)
{
  const double h = (double)m->hidden, head_dim = (double)m->head_dim, heads = (double)m->heads;
  const double shared = 2.0 * (double)(m->ssm.groups * m->ssm.state) + (double)m->ssm.heads;
  double work = h * (double)m->vocab;
  for (gint64 i = 0; i < m->layers; i++)
    work += m->pattern.of[i] == 'M'
                ? h * (4 * h + shared) + 7 * h * (double)m->ssm.state + 2 * h * h
            : m->pattern.of[i] == '*'
                ? h * head_dim * 2 * (heads + (double)m->kv_heads) + heads * head_dim
                : (m->gated ? 3 : 2) * h * (double)m->ffn;
  ck_assert_double_eq_tol (plan_model_flops_per_token (m, 1, m->vocab) / (6 * work), 1, 1e-12);
  ck_assert_msg (plan_model_flops_per_token (m, 2, m->vocab) > 6 * work
                     || !strchr (m->pattern.of, '*'),
                 "seed %d", seed);
}

/* FLOPs of a sequence of one token: 2 forwards and 4 backwards for every weight that multiplies it,
 * and for every element of its query, in attention to itself. The gate of shared experts is not
 * counted, and neither are decays, but the products of the delta rule. Latent attention and modules
 * for multi-token prediction do more than this adds up. */
static void
assert_flops (const PlanModel *m, const guint64 *parts, int seed)
{
  if (*m->pattern.of)
    {
      assert_flops_of_pattern (m, seed);
      return;
    }
  PlanTensor gate = plan_model_tensor (m, PLAN_TENSOR_SHARED_GATE, 0);
  const guint64 gates = plan_model_numel (&gate) * (guint64)plan_model_moe_layers (m);
  const guint64 experts
      = m->experts ? parts[PLAN_PART_EXPERTS] / (guint64)m->experts * (guint64)m->topk : 0;
  gint64 linear = 0;
  for (gint64 i = 1; m->delta.attn_every > 0 && i <= m->layers; i++)
    linear += i % m->delta.attn_every != 0;
  const double rule = (double)(linear * m->delta.value_heads)
                      * (4.0 * (double)m->delta.value_dim * (double)m->delta.value_dim - 1);
  const double weights
      = rule
        + (double)(parts[PLAN_PART_ATTENTION] + parts[PLAN_PART_MLP] + experts
                   + parts[PLAN_PART_SHARED_EXPERTS] - gates + parts[PLAN_PART_EMBEDDING]);
  const double flops = plan_model_flops_per_token (m, 1, m->vocab);
  ck_assert_msg (plan_model_flops_per_token (m, 2, m->vocab) > flops || linear == m->layers,
                 "seed %d", seed);
  if (m->mtp > 0 || m->kv_lora > 0)
    ck_assert_msg (flops > 6 * weights, "seed %d", seed);
  else
    ck_assert_msg (flops == 6 * (weights + (double)((m->layers - linear) * m->heads * m->head_dim)),
                   "seed %d: %g", seed, flops);
}

START_TEST (model_reads_back)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (GError) error = NULL;
  g_autofree char *spec = random_spec (rand);
  g_autoptr (PlanModel) model = plan_model_new (spec, &error);
  if (!model)
    {
      ck_assert_msg (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID), "%s", spec);
      return;
    }
  g_autofree char *text = plan_model_print (model);
  g_autoptr (PlanModel) again = plan_model_new (text, &error);
  ck_assert_msg (again != NULL, "seed %d: %s: %s", _i, text, error ? error->message : "");
  assert_same (model, again, _i);
  g_autofree char *text_again = plan_model_print (again);
  ck_assert_str_eq (text, text_again);
}
END_TEST

START_TEST (counts_add_up)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autofree char *spec = random_spec (rand);
  g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
  if (!model)
    return;
  PlanTensor tensors[PLAN_N_TENSORS];
  guint64 parts[PLAN_N_PARTS], sum = 0, of_parts = 0;
  guint n = plan_model_outer_tensors (model, model->vocab, tensors);
  for (gint64 layer = -1; layer < model->layers; layer++)
    {
      if (layer >= 0)
        n = plan_model_layer_tensors (model, layer, tensors);
      for (guint i = 0; i < n; i++)
        sum += tensors[i].count * tensors[i].rows * tensors[i].cols;
    }
  ck_assert_msg (plan_model_count (model, parts) == sum, "seed %d: %s", _i, spec);
  for (guint i = 0; i < PLAN_N_PARTS; i++)
    of_parts += parts[i];
  ck_assert_uint_eq (sum, of_parts);
  ck_assert_uint_le (plan_model_active_parameters (model), sum);
  ck_assert (model->experts > 0 || plan_model_active_parameters (model) == sum);
  assert_flops (model, parts, _i);
}
END_TEST

/* More than a third of the specs are legal, or the loops above would prove little. */
START_TEST (most_specs_are_legal)
{
  guint legal = 0;
  for (guint32 seed = 0; seed < N_SEEDS; seed++)
    {
      g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
      g_autofree char *spec = random_spec (rand);
      g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
      legal += model != NULL;
    }
  ck_assert_uint_gt (legal, N_SEEDS / 3);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("model-text");
  TCase *tcase = tcase_create ("model-text");
  tcase_add_loop_test (tcase, model_reads_back, 0, N_SEEDS);
  tcase_add_loop_test (tcase, counts_add_up, 0, N_SEEDS);
  tcase_add_test (tcase, most_specs_are_legal);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
