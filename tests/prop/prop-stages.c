/* SPDX-License-Identifier: Apache-2.0 */
/* Which stage of a pipeline holds which layers and parameters; the cuts that a search tries. */
#include "config.h"

#include "planner/plan/stages.h"
#include "planner/search/cuts.h"
#include "tests/prop/pipelines.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Every layer, the embedding and the output layer are on one stage. The embedding has a copy where
 * the output layer is on another stage and shares its matrix, or a prediction module reads it. */
START_TEST (every_parameter_is_on_one_stage)
{
  g_auto (Pipeline) p = { 0 };
  pipeline_init (&p, (guint)_i, FALSE);
  guint64 parameters = 0;
  gint64 next = 0, heads = 0, casts = 0, losses = 0;
  for (guint i = 0; i < p.n; i++)
    {
      const PlanStage stage = plan_stage_of (p.model, p.of->stack, &p.of->plan, i);
      const PlanModel part = plan_stage_model (&stage, p.model);
      ck_assert_int_eq (stage.first, next);
      ck_assert_int_eq (stage.has_embedding, i == 0);
      ck_assert_int_eq (stage.has_loss, i == p.n - 1);
      ck_assert (!stage.has_head || next + stage.layers - stage.modules == p.model->layers);
      ck_assert (!stage.has_cast || heads + stage.has_head == 1);
      heads += stage.has_head, casts += stage.has_cast, losses += stage.has_loss;
      parameters += plan_model_parameters (&part);
      next += stage.layers - stage.modules;
      for (gint64 layer = 0; layer < stage.layers - stage.modules; layer++)
        ck_assert_uint_eq (plan_model_layer_kind (&part, layer, 64),
                           plan_model_layer_kind (p.model, stage.first + layer, 64));
    }
  ck_assert_int_eq (next, p.model->layers);
  ck_assert (heads == 1 && casts == 1 && losses == 1);
  const PlanStage first = plan_stage_of (p.model, p.of->stack, &p.of->plan, 0);
  const gboolean has_copy = !first.has_head && (p.model->tied_embeddings || p.model->mtp > 0);
  ck_assert_uint_eq (parameters,
                     plan_model_parameters (p.model) + plan_model_mtp_parameters (p.model)
                         + (has_copy ? (guint64)(p.model->vocab * p.model->hidden) : 0));
}
END_TEST

static int
compare_offsets (gconstpointer a, gconstpointer b)
{
  const guint64 x = *(const guint64 *)a, y = *(const guint64 *)b;
  return x < y ? -1 : x > y;
}

/* Prints offsets in a bucket in ascending order, each once. */
static char *
describe_offsets (GArray *offsets)
{
  GString *text = g_string_new (NULL);
  guint64 last = G_MAXUINT64;
  g_array_sort (offsets, compare_offsets);
  for (guint i = 0; i < offsets->len; i++)
    {
      const guint64 at = g_array_index (offsets, guint64, i);
      if (at != last)
        g_string_append_printf (text, " %" G_GUINT64_FORMAT, at);
      last = at;
    }
  return g_string_free (text, FALSE);
}

static int
compare_texts (gconstpointer a, gconstpointer b)
{
  return strcmp (*(char *const *)a, *(char *const *)b);
}

/* Prints a line for each bucket that has any offsets; lines are sorted. */
static char *
describe_all (GArray **offsets, guint n)
{
  g_autoptr (GPtrArray) lines = g_ptr_array_new_with_free_func (g_free);
  for (guint i = 0; i < n; i++)
    {
      if (offsets[i]->len > 0)
        g_ptr_array_add (lines, describe_offsets (offsets[i]));
      g_array_unref (offsets[i]);
    }
  g_ptr_array_sort (lines, compare_texts);
  g_ptr_array_add (lines, NULL);
  return g_strjoinv ("\n", (char **)lines->pdata);
}

static GArray **
new_offsets (guint n)
{
  GArray **offsets = g_new (GArray *, n);
  for (guint i = 0; i < n; i++)
    offsets[i] = g_array_new (FALSE, FALSE, sizeof (guint64));
  return offsets;
}

/* Prints where parameters lie in each bucket. */
static char *
describe_parameters (const PlanBuckets *buckets)
{
  g_autofree GArray **offsets = new_offsets (buckets->n);
  for (guint p = 0; p < buckets->n_all; p++)
    g_array_append_val (offsets[buckets->number[p]], buckets->offset[p]);
  return describe_all (offsets, buckets->n);
}

/* Prints at which offsets compute ops read each buffer of weights. */
static char *
describe_reads (const PlanSchedule *schedule)
{
  const guint n = plan_schedule_n_buffer_ids (schedule);
  g_autofree GArray **offsets = new_offsets (n);
  PlanCursor cursor;
  const PlanOp *op;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  while ((op = plan_cursor_next (&cursor)))
    for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
      {
        const PlanRef *ref = &op->refs[i];
        if (ref->array < 0 || plan_op_ref_access (op->kind, i) != 'r'
            || plan_op_class (op->kind) != PLAN_CLASS_COMPUTE)
          continue;
        const guint64 at = (guint64)plan_cursor_at (&cursor, ref);
        const PlanCategory category = plan_schedule_buffer (schedule, (guint)ref->array)->category;
        if (category == PLAN_CATEGORY_WEIGHTS || category == PLAN_CATEGORY_GATHERED)
          g_array_append_val (offsets[plan_cursor_buffer (&cursor, ref)], at);
      }
  return describe_all (offsets, n);
}

/* Repeats over layers that share a bucket, or have one each, read each parameter where it lies. */
START_TEST (parameters_are_read_where_they_lie)
{
  g_auto (Pipeline) p = { 0 };
  pipeline_init (&p, (guint)_i, _i % 2);
  for (guint i = 0; i < p.n && p.model->experts == 0; i++)
    {
      const PlanStage stage = plan_stage_of (p.model, p.of->stack, &p.of->plan, i);
      const PlanModel part = plan_stage_model (&stage, p.model);
      PlanLayout layout;
      plan_layout_init (&layout, &part, p.of->stack, &p.of->plan,
                        plan_data_parallel (&p.of->plan, p.cluster));
      if (!layout.by_size)
        continue;
      g_auto (PlanBuckets) buckets = { 0 };
      plan_buckets_init (&buckets, &part, &layout.rule);
      g_autofree char *wanted = describe_parameters (&buckets);
      g_autofree char *found = describe_reads (p.schedules[i]);
      ck_assert_str_eq (found, wanted);
    }
}
END_TEST

/* The stages of a model whose output layer costs exactly as much as four layers, in nanotron's way,
 * and evenly. */
START_TEST (layers_are_dealt_out)
{
  g_autoptr (PlanModel) model
      = plan_model_new ("layers=16,hidden=64,ffn=128,heads=4,vocab=2560,max_seq=64", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  const struct
  {
    const char *words;
    gint64 layers[8];
  } known[] = {
    { "stack=nanotron strategy=optim pp=2 gbs=8", { 11, 5 } },
    { "stack=nanotron strategy=optim pp=2 gbs=8 pp_first_layers=10", { 10, 6 } },
    { "stack=megatron strategy=optim pp=4 gbs=8", { 4, 4, 4, 4 } },
    { "stack=megatron strategy=optim pp=4 gbs=8 pp_first_layers=3 pp_last_layers=1",
      { 3, 6, 6, 1 } },
    { "stack=megatron strategy=optim pp=4 gbs=8 pp_last_layers=1", { 5, 5, 5, 1 } },
    { "stack=fsdp2 strategy=optim_grads pp=4 gbs=8 pp_last_layers=1", { 5, 5, 5, 1 } },
    { "stack=fsdp2 strategy=optim_grads pp=4 gbs=8", { 4, 4, 4, 4 } },
    { "stack=fsdp2 strategy=optim_grads pp=4 gbs=8 pp_count_loss=on", { 5, 4, 4, 3 } },
    { "stack=fsdp2 strategy=optim_grads pp=4 gbs=8 pp_count_embedding=on pp_count_loss=on",
      { 4, 5, 4, 3 } },
    { "stack=fsdp2 strategy=optim_grads pp=8 gbs=8 pp_count_embedding=on pp_count_loss=on",
      { 2, 3, 2, 2, 2, 2, 2, 1 } },
  };
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    {
      g_autoptr (PlanCase) of = test_case (model, cluster, known[i].words);
      for (gint64 s = 0; s < of->plan.value[PLAN_PP]; s++)
        ck_assert_int_eq (plan_stage_of (model, of->stack, &of->plan, s).layers,
                          known[i].layers[s]);
    }
}
END_TEST

/* torchtitan's virtual stages, one more layer each to the first ones, embedding and output layer
 * counted as said. */
START_TEST (rests_are_dealt_out)
{
  static const struct
  {
    const char *words;
    gint64 layers[12];
  } known[] = {
    { "pp=2 vpp=3 gbs=32", { 3, 3, 3, 3, 2, 2 } },
    { "pp=2 vpp=4 gbs=32 pp_count_loss=on", { 3, 2, 2, 2, 2, 2, 2, 1 } },
    { "pp=4 vpp=3 gbs=32 pp_count_embedding=on pp_count_loss=on",
      { 1, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0 } },
    { "pp=2 vpp=5 gbs=32 pp_count_embedding=on", { 1, 2, 2, 2, 2, 2, 2, 1, 1, 1 } },
  };
  g_autoptr (PlanModel) model
      = plan_model_new ("layers=16,hidden=64,ffn=128,heads=4,vocab=2560,max_seq=64,tied=off", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    {
      g_autofree char *words
          = g_strconcat ("stack=fsdp2 strategy=optim_grads ", known[i].words, NULL);
      g_autoptr (PlanCase) of = test_case (model, cluster, words);
      const gint64 stages = of->plan.value[PLAN_PP], n = stages * of->plan.value[PLAN_VPP];
      gint64 next = 0;
      for (gint64 at = 0; at < n; at++)
        {
          const PlanStage stage = plan_stage_of (model, of->stack, &of->plan, at % stages);
          const PlanStage part = plan_stage_virtual (&stage, at / stages);
          ck_assert_int_eq (part.layers, known[i].layers[at]);
          for (gint64 k = 0; k < part.layers; k++)
            ck_assert_int_eq (plan_stage_layer (&stage, part.first + k), next++);
        }
      ck_assert_int_eq (next, model->layers);
    }
}
END_TEST

/* nanotron's blocks on the last stages: of a model of 16 layers whose output layer costs as much as
 * four layers, and of one of 32 layers where it costs as much as 2.2. The output layer, the cast
 * and the loss may be on stages without layers. */
START_TEST (blocks_behind_layers_are_dealt_out)
{
  const struct
  {
    const char *model;
    gint64 stages, layers[8]; /* of the last eight */
    const char *behind[8];    /* output layer, cast and loss */
    gboolean leaves_one_empty;
  } known[] = {
    { "layers=16,hidden=64,ffn=128,heads=4,vocab=2560,max_seq=64",
      4,
      { 0, 0, 0, 0, 6, 5, 5, 0 },
      { "", "", "", "", "", "", "", "hcl" },
      FALSE },
    { "layers=16,hidden=64,ffn=128,heads=4,vocab=2560,max_seq=64",
      8,
      { 3, 3, 2, 3, 2, 3, 0, 0 },
      { "", "", "", "", "", "", "h", "cl" },
      FALSE },
    { "layers=16,hidden=64,ffn=128,heads=4,vocab=2560,max_seq=64",
      16,
      { 1, 1, 1, 2, 0, 0, 0, 0 },
      { "", "", "", "", "h", "c", "l", "" },
      TRUE },
    { "layers=32,hidden=4096,ffn=14336,heads=32,vocab=131072,max_seq=64",
      16,
      { 2, 2, 2, 2, 2, 2, 2, 0 },
      { "", "", "", "", "", "", "h", "cl" },
      FALSE },
    { "layers=32,hidden=4096,ffn=14336,heads=32,vocab=131072,max_seq=64",
      32,
      { 1, 1, 1, 1, 2, 0, 0, 0 },
      { "", "", "", "", "", "h", "c", "l" },
      FALSE },
  };
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    {
      g_autoptr (PlanModel) model = plan_model_new (known[i].model, NULL);
      Plan plan = test_plan ("stack=nanotron strategy=optim gbs=64");
      plan.value[PLAN_PP] = known[i].stages;
      const PlanStack *nanotron = plan_stack_of (&plan, PLAN_DEVICE_GPU, NULL);
      for (gint64 s = MAX (known[i].stages - 8, 0); s < known[i].stages; s++)
        {
          const gint64 at = s - known[i].stages + 8;
          const PlanStage stage = plan_stage_of (model, nanotron, &plan, s);
          g_autofree char *behind
              = g_strconcat (stage.has_head ? "h" : "", stage.has_cast ? "c" : "",
                             stage.has_loss ? "l" : "", NULL);
          ck_assert_int_eq (stage.layers, known[i].layers[at]);
          ck_assert_str_eq (behind, known[i].behind[at]);
        }
      ck_assert_int_eq (plan_stages_leave_one_empty (model, nanotron, &plan),
                        known[i].leaves_one_empty);
    }
}
END_TEST

/* Replaces what is repeated by what it says, as Megatron-LM reads it: commas mean nothing, groups
 * come first, then letters. */
static gboolean
repeat (const GMatchInfo *match, GString *out, gpointer unused)
{
  g_autofree char *what = g_match_info_fetch (match, 1), *times = g_match_info_fetch (match, 2);
  (void)unused;
  for (int i = atoi (times); i > 0; i--)
    g_string_append (out, what);
  return FALSE;
}

static char *
expand (const char *text)
{
  static const char *const patterns[] = { "\\(([^)]+)\\)\\*(\\d+)", "(.)\\*(\\d+)" };
  g_auto (GStrv) parts = g_strsplit (text, ",", -1);
  char *all = g_strjoinv ("", parts);
  for (guint i = 0; i < G_N_ELEMENTS (patterns); i++)
    {
      g_autoptr (GRegex) pattern = g_regex_new (patterns[i], 0, 0, NULL);
      g_autofree char *before = all;
      all = g_regex_replace_eval (pattern, before, -1, 0, 0, repeat, NULL, NULL);
    }
  return all;
}

/* A layout, in any form, puts each layer where its letter stands; what a plan prints says the
 * same. */
START_TEST (layouts_put_layers_where_their_letters_are)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint32 stages = g_rand_int_range (rand, 2, 9), n_virtual = g_rand_int_range (rand, 1, 5);
  const guint n = (guint)(stages * n_virtual);
  g_autofree gint64 *layers = g_new0 (gint64, n);
  gint64 all = 0, next = 0;
  for (guint i = 0; i < n; i++)
    all += layers[i] = g_rand_int_range (rand, i > 0 && i + 1 < n ? 1 : 0, _i % 3 + 2);
  if (all < stages * n_virtual) /* so that vpp x pp is at most the layers */
    layers[0] += stages * n_virtual - all, all = stages * n_virtual;
  g_autofree char *text = pipeline_layout_text (layers, n, 0, rand);
  g_autofree char *set = g_strdup_printf ("stack=%s strategy=optim gbs=%u pp=%d pp_layout=%s",
                                          _i % 2 ? "native" : "megatron", 8 * n, stages, text);
  g_autofree char *spec
      = g_strdup_printf ("layers=%d,hidden=64,ffn=128,heads=4,vocab=128,max_seq=64", (int)all);
  g_autofree char *nodes = g_strdup_printf ("dgx-h100:%d", stages);
  g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (nodes, NULL);
  const Plan given = test_plan (set);
  g_autofree char *shown = plan_field_print (PLAN_PP_LAYOUT, given.value[PLAN_PP_LAYOUT]);
  g_autofree char *one = expand (text), *other = expand (shown);
  ck_assert_str_eq (one, other);
  g_autoptr (PlanCase) of = test_case_of (model, cluster, &given);
  ck_assert_int_eq (of->plan.value[PLAN_VPP], n_virtual);
  g_auto (GStrv) letters = g_strsplit (one, "|", -1);
  ck_assert_uint_eq (g_strv_length (letters), n);
  for (guint i = 0; i < n; i++)
    {
      const PlanStage stage = plan_stage_of (model, of->stack, &of->plan, i % (guint)stages);
      const PlanStage part = plan_stage_virtual (&stage, i / (guint)stages);
      const PlanModel held = plan_stage_model (&stage, model);
      const gsize ends = (strchr (letters[i], 'E') != NULL) + (strchr (letters[i], 'L') != NULL);
      ck_assert_int_eq (part.layers, (gint64)(strlen (letters[i]) - ends));
      ck_assert_int_eq (part.has_embedding, strchr (letters[i], 'E') != NULL);
      ck_assert_int_eq (part.has_head && part.has_loss, strchr (letters[i], 'L') != NULL);
      for (gint64 k = 0; k < part.layers; k++)
        {
          ck_assert_int_eq (plan_stage_layer (&stage, part.first + k), next++);
          ck_assert_int_eq (plan_model_cut_run (&held.cut, part.first + k),
                            n_virtual > 1 ? i / (guint)stages : 0);
          ck_assert_int_eq (plan_model_cut_rest (&held.cut, part.first + k, held.layers),
                            part.layers - k);
        }
    }
  ck_assert_int_eq (next, all);
}
END_TEST

/* The load of a plan's slowest stage, in layers; the loss counts as `loss` layers. */
static double
slowest_stage (const PlanModel *model, const PlanStack *stack, const Plan *plan, double loss)
{
  double slowest = 0;
  for (gint64 number = 0; number < plan->value[PLAN_PP]; number++)
    {
      const PlanStage stage = plan_stage_of (model, stack, plan, number);
      slowest = MAX (slowest, (double)stage.layers + (stage.has_head ? loss : 0));
    }
  return slowest;
}

/* Cuts assign all layers to stages. Where a cut sets the layers of the first or last stage, no
 * other numbers there would make the slowest stage quicker. */
START_TEST (cuts_are_legal_and_even)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autofree char *spec
      = g_strdup_printf ("layers=%d,hidden=512,ffn=1024,heads=8,vocab=%d,max_seq=64",
                         g_rand_int_range (rand, 1, 100), 1000 * g_rand_int_range (rand, 1, 60));
  g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
  g_autofree char *nodes = g_strdup_printf ("dgx-h100:%d", g_rand_int_range (rand, 1, 7));
  g_autoptr (PlanCluster) cluster = plan_cluster_new (nodes, NULL);
  Plan plan = test_plan ("stack=megatron strategy=optim gbs=64 seq=64");
  const PlanStack *stack = plan_stack_of (&plan, PLAN_DEVICE_GPU, NULL);
  const double layers = plan_model_flops_per_token (model, 64, 0) / (double)model->layers;
  const double loss = 6 * (double)(model->hidden * model->vocab) / layers;
  g_autoptr (GArray) cuts
      = plan_cuts_of (model, cluster, stack, 64, (PlanCutFixed){ .has_layout = FALSE });
  ck_assert_uint_gt (cuts->len, 0);
  for (guint i = 0; i < cuts->len; i++)
    {
      const PlanCut *cut = &g_array_index (cuts, PlanCut, i);
      ck_assert_int_eq (plan_cluster_devices (cluster) % cut->stages, 0);
      plan.value[PLAN_PP] = cut->stages;
      plan.value[PLAN_VPP] = cut->n_virtual;
      plan.value[PLAN_PP_FIRST_LAYERS] = cut->first_layers;
      plan.value[PLAN_PP_LAST_LAYERS] = cut->last_layers;
      plan.value[PLAN_PP_COUNT_EMBEDDING] = cut->counts_ends;
      plan.value[PLAN_PP_COUNT_LOSS] = cut->counts_ends || cut->last_short == 1;
      plan.value[PLAN_PP_LAST_SHORT] = cut->last_short > 1 ? cut->last_short : 0;
      ck_assert_msg (plan_stages_divide (model, stack, &plan), "%s: %d stages, %d virtual", spec,
                     (int)cut->stages, (int)cut->n_virtual);
      if (cut->last_layers == PLAN_UNSET)
        continue;
      const double found = slowest_stage (model, stack, &plan, loss);
      for (gint64 first = 1; first < model->layers; first++)
        for (gint64 last = 1; first + last <= model->layers; last++)
          {
            plan.value[PLAN_PP_FIRST_LAYERS] = first;
            plan.value[PLAN_PP_LAST_LAYERS] = last;
            if (plan_stages_divide (model, stack, &plan) && first % cut->n_virtual == 0
                && last % cut->n_virtual == 0 && !plan_stages_leave_one_empty (model, stack, &plan))
              ck_assert_msg (found <= slowest_stage (model, stack, &plan, loss) + 1e-6,
                             "%s: %d stages, %d virtual, ends %d and %d: %g layers; %d and %d: %g",
                             spec, (int)cut->stages, (int)cut->n_virtual, (int)cut->first_layers,
                             (int)cut->last_layers, found, (int)first, (int)last,
                             slowest_stage (model, stack, &plan, loss));
          }
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-stages");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  tcase_add_test (tcase, layers_are_dealt_out);
  tcase_add_test (tcase, rests_are_dealt_out);
  tcase_add_test (tcase, blocks_behind_layers_are_dealt_out);
  test_add_share (tcase, every_parameter_is_on_one_stage, 40);
  test_add_share (tcase, layouts_put_layers_where_their_letters_are, 300);
  test_add_share (tcase, parameters_are_read_where_they_lie, 60);
  test_add_share (tcase, cuts_are_legal_and_even, 40);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
