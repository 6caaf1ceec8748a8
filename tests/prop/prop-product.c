/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads against the evaluator, bit for bit, over the product of what plans say. A share
 * of it, chosen by hashing; FSDPLAN_PRODUCT=whole runs every plan, and FSDPLAN_PRODUCT_FROM=N
 * begins with the Nth of its hundred parts, where a run was broken off. */
#include "config.h"

#include "tests/case.h"
#include "tests/prop/product.h"
#include "tests/prop/shards.h"
#include "tests/reference/evaluate.h"

#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARE 96
#define PLANS 4        /* one in this many of a declaration's plans is run */
#define SPARSEST 200   /* the least share of declarations with large sizes is one in this many */
#define BEYOND_DENSE 3 /* of declarations with experts or split layers, fewer by this factor */

#define MAX_WORKERS 16

/* The product is cut into so many parts, each of which is a test. */
#define N_PARTS 100

/* What a worker found in all parts. */
typedef struct
{
  guint plans, declarations, refused;
  guint met[PRODUCT_N_DIMENSIONS][PRODUCT_MAX_VALUES];
} Tally;

static Tally *tally; /* by worker, in memory that they share */

static guint64
mix (guint64 x)
{
  x = (x ^ x >> 30) * G_GUINT64_CONSTANT (0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * G_GUINT64_CONSTANT (0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* One plan in how many is run. */
static guint64
share (void)
{
  const char *asked = g_getenv ("FSDPLAN_PRODUCT");
  guint64 value = SHARE;
  if (g_strcmp0 (asked, "whole") == 0)
    return 1;
  if (asked && !g_ascii_string_to_unsigned (asked, 10, PLANS, G_MAXUINT32, &value, NULL))
    g_error ("FSDPLAN_PRODUCT=%s is neither `whole` nor a number from %d on", asked, PLANS);
  return value;
}

/* The first part that is run. */
static guint
first_part (void)
{
  const char *asked = g_getenv ("FSDPLAN_PRODUCT_FROM");
  guint64 value = 0;
  if (asked && !g_ascii_string_to_unsigned (asked, 10, 0, N_PARTS - 1, &value, NULL))
    g_error ("FSDPLAN_PRODUCT_FROM=%s is no number below %d", asked, N_PARTS);
  return (guint)value;
}

/* Whether a point is run. Some compute formats need large sizes, which take long, so fewer of their
 * declarations are chosen, down to one in SPARSEST. */
static gboolean
is_chosen (guint64 point, guint64 one_in)
{
  const guint64 usual = one_in / PLANS;
  const guint64 share
      = MIN (usual * product_weight (product_digit (point, PRODUCT_COMPUTE)), MAX (usual, SPARSEST))
        * (product_is_beyond_dense (point) ? BEYOND_DENSE : 1);
  return one_in == 1
         || (mix (product_declaration (point) + 2) % share == 0 && mix (~point) % PLANS == 0);
}

/* The evaluator's result for one declaration, made for the first of its plans that is run. */
typedef struct
{
  guint64 declaration;
  ExecResult result;
} Expected;

static gboolean
expect (Expected *self, const ProductCase *c, guint64 point, guint *made, GError **error)
{
  if (self->result.losses && self->declaration == product_declaration (point))
    return TRUE;
  exec_result_clear (&self->result);
  self->result = (ExecResult){ 0 };
  self->declaration = product_declaration (point);
  ++*made;
  return exec_evaluate (&c->job, c->ranks, &self->result, error);
}

static gboolean
run_point (Expected *expected, guint64 point, Tally *found)
{
  g_auto (ProductCase) c = { 0 };
  ExecResult results[PRODUCT_MAX_RANKS] = { { 0 } };
  g_autoptr (GError) error = NULL;
  if (!product_case_init (&c, point))
    {
      found->refused++;
      return TRUE;
    }
  gboolean equal = expect (expected, &c, point, &found->declarations, &error)
                   && exec_run_threads (&c.job, c.ranks, TRUE, NULL, NULL, results, &error);
  for (guint r = 0; r < c.ranks; r++)
    {
      equal = equal && product_case_equals (&c, r, &results[r], &expected->result);
      exec_result_clear (&results[r]);
    }
  found->plans++;
  for (ProductDimension d = 0; d < PRODUCT_N_DIMENSIONS; d++)
    found->met[d][product_digit (point, d)]++;
  if (equal)
    return TRUE;
  g_autofree char *name = product_name (point);
  printf ("# not as the evaluator's: %s%s%s\n", name, error ? ": " : "",
          error ? error->message : "");
  return FALSE;
}

/* Binds a worker to one processor, where that is allowed: ranks of tiny models meet more than they
 * compute, and on one processor a meeting costs a third of what it costs between two. */
static void
stay_on (guint worker)
{
  cpu_set_t allowed, one;
  guint nth = worker;
  if (sched_getaffinity (0, sizeof allowed, &allowed) != 0)
    return;
  CPU_ZERO (&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET (cpu, &allowed) && nth-- == 0)
      {
        CPU_SET (cpu, &one);
        sched_setaffinity (0, sizeof one, &one);
        return;
      }
}

/* Runs every `workers`th declaration of a part. */
static gboolean
run_share (guint part, guint worker, guint workers)
{
  Expected expected = { 0 };
  const guint64 size = product_size () / N_PARTS, one_in = share ();
  gboolean ok = TRUE;
  for (guint64 point = part * size; point < (part + 1) * size; point++)
    if (product_declaration (point) % workers == worker && is_chosen (point, one_in))
      ok = run_point (&expected, point, &tally[worker]) && ok;
  exec_result_clear (&expected.result);
  return ok;
}

static guint
count_workers (void)
{
  return CLAMP (g_get_num_processors (), 1, MAX_WORKERS);
}

START_TEST (threads_equal_the_evaluator_over_the_product)
{
  const guint workers = count_workers ();
  pid_t worker[MAX_WORKERS];
  fflush (stdout);
  for (guint w = 0; w < workers; w++)
    if ((worker[w] = fork ()) == 0)
      {
        stay_on (w);
        const gboolean ok = run_share ((guint)_i, w, workers);
        fflush (stdout);
        _exit (ok ? EXIT_SUCCESS : EXIT_FAILURE);
      }
  for (guint w = 0; w < workers; w++)
    {
      int status = 0;
      ck_assert_int_gt (worker[w], 0);
      ck_assert_int_eq (waitpid (worker[w], &status, 0), worker[w]);
      ck_assert_msg (WIFEXITED (status) && WEXITSTATUS (status) == EXIT_SUCCESS,
                     "part %d: a worker ended with status %d", _i, status);
    }
  if (share () == 1)
    fprintf (stderr, "part %d of %d is done\n", _i, N_PARTS);
}
END_TEST

/* Comes after all parts. */
START_TEST (every_value_was_run)
{
  Tally all = { 0 };
  for (guint w = 0; w < MAX_WORKERS; w++)
    {
      all.plans += tally[w].plans;
      all.declarations += tally[w].declarations;
      all.refused += tally[w].refused;
      for (ProductDimension d = 0; d < PRODUCT_N_DIMENSIONS; d++)
        for (guint v = 0; v < product_values (d); v++)
          all.met[d][v] += tally[w].met[d][v];
    }
  printf ("# %u plans of %u declarations equal the evaluator: one in %" G_GUINT64_FORMAT
          " of the product, fewer of large sizes; rules refuse %u more\n",
          all.plans, all.declarations, share (), all.refused);
  fflush (stdout);
  for (ProductDimension d = 0; d < PRODUCT_N_DIMENSIONS && first_part () == 0; d++)
    for (guint v = 0; v < product_values (d); v++)
      ck_assert_msg (all.met[d][v] > 0, "no plan has %s", product_value_name (d, v));
}
END_TEST

/* A point is put together from its digits, and buckets are padded where the point's name calls the
 * model uneven. Models with sinks are left out, since no number of shards divides those. */
START_TEST (points_are_what_they_say)
{
  guint met[2][2] = { { 0 } }; /* by whether buckets should be padded, and whether they are */
  for (guint64 point = 0; point < product_size (); point += 1009)
    {
      guint digits[PRODUCT_N_DIMENSIONS];
      g_auto (ProductCase) c = { 0 };
      for (ProductDimension d = 0; d < PRODUCT_N_DIMENSIONS; d++)
        digits[d] = product_digit (point, d);
      ck_assert_uint_eq (product_point (digits), point);
      if (!product_case_init (&c, point) || c.ranks == 3 || digits[PRODUCT_COMPUTE] > 1
          || c.of->plan.value[PLAN_TP] > 1 || c.of->model->sinks)
        continue;
      const PlanLayout *layout = &c.of->layout;
      for (PlanBucketKind k = 0; layout->shards > 1 && k < PLAN_N_BUCKETS; k++)
        if (plan_bucket_is_unit (k) && plan_layout_has (layout, k))
          met[digits[PRODUCT_SHARDS] % 2][layout->buckets[k].padded > layout->buckets[k].raw]++;
    }
  ck_assert_uint_gt (met[0][0], 20);
  ck_assert_uint_gt (met[1][1], 20);
  ck_assert_uint_eq (met[0][1] + met[1][0], 0);
}
END_TEST

/* A plan of the product in fp32, with as many micro batches of one sequence as `sequences`. */
static gboolean
simple_case_init (ProductCase *c, guint ranks, guint strategy, guint recompute, gint64 sequences)
{
  g_autofree char *gbs = g_strdup_printf ("gbs=%d", (int)sequences);
  guint digits[PRODUCT_N_DIMENSIONS] = { [PRODUCT_SHARDS] = 1,
                                         [PRODUCT_RANKS] = ranks,
                                         [PRODUCT_STRATEGY] = strategy,
                                         [PRODUCT_RECOMPUTE] = recompute };
  if (!product_case_init (c, product_point (digits)))
    return FALSE;
  test_case_set (&c->of, gbs);
  c->job.of = c->of;
  c->job.seed = 1;
  return TRUE;
}

/* With fp32, one micro batch per rank and no replicas, N ranks and one rank with N micro batches
 * add up the same numbers in the same order. */
START_TEST (ranks_do_not_matter_where_the_sums_coincide)
{
  g_auto (ProductCase) one = { 0 }, many = { 0 };
  ExecResult alone[1] = { { 0 } }, results[PRODUCT_MAX_RANKS] = { { 0 } };
  g_auto (ExecResult) expected = { 0 };
  g_autoptr (GError) error = NULL;
  const guint ranks = 1 + (guint)_i % 4, strategy = (guint)_i / 4;
  ck_assert (simple_case_init (&many, ranks, strategy, 0, product_ranks (ranks)));
  ck_assert (simple_case_init (&one, 0, 0, 0, many.ranks));
  ck_assert_msg (exec_run_threads (&one.job, 1, TRUE, NULL, NULL, alone, &error)
                     && exec_run_threads (&many.job, many.ranks, TRUE, NULL, NULL, results, &error)
                     && exec_evaluate (&one.job, 1, &expected, &error),
                 "%s", error ? error->message : "");
  ck_assert (product_case_equals (&one, 0, &alone[0], &expected));
  for (guint r = 0; r < many.ranks; r++)
    {
      ck_assert (product_case_equals (&many, r, &results[r], &expected));
      exec_result_clear (&results[r]);
    }
  exec_result_clear (&alone[0]);
}
END_TEST

/* Asserts that each rank has the same figures and weights in both results, and clears them. */
static void
assert_same (const ProductCase *c, ExecResult *results, ExecResult *others)
{
  const gsize bytes = (gsize)c->job.steps * sizeof (double);
  for (guint r = 0; r < c->ranks; r++)
    {
      ck_assert_mem_eq (results[r].losses, others[r].losses, bytes);
      ck_assert_mem_eq (results[r].grad_norms, others[r].grad_norms, bytes);
      ck_assert_uint_eq (results[r].main_params->len, others[r].main_params->len);
      ck_assert_mem_eq (results[r].main_params->data, others[r].main_params->data,
                        results[r].main_params->len);
      exec_result_clear (&results[r]);
      exec_result_clear (&others[r]);
    }
}

/* Recomputing or offloading changes neither a loss nor a norm nor a weight. */
START_TEST (recomputing_changes_no_bit)
{
  g_auto (ProductCase) c = { 0 };
  ExecResult kept[PRODUCT_MAX_RANKS] = { { 0 } }, again[PRODUCT_MAX_RANKS] = { { 0 } };
  g_autoptr (GError) error = NULL;
  const guint strategy = (guint)_i / 6, recompute = 1 + (guint)_i % 6;
  ck_assert (simple_case_init (&c, 2, strategy, 0, 6)
             && exec_run_threads (&c.job, c.ranks, TRUE, NULL, NULL, kept, &error));
  product_case_clear (&c);
  ck_assert (simple_case_init (&c, 2, strategy, recompute, 6)
             && exec_run_threads (&c.job, c.ranks, TRUE, NULL, NULL, again, &error));
  ck_assert_int_ne (c.of->plan.value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_NONE,
                    c.of->plan.value[PLAN_OFFLOAD_MODULES] == 0
                        && c.of->plan.value[PLAN_OFFLOAD_OPTIMIZER] == 0);
  ck_assert_uint_gt (again[0].trace->spans->len, kept[0].trace->spans->len);
  assert_same (&c, kept, again);
}
END_TEST

#define WIDE \
  "family=llama,layers=2,hidden=64,ffn=8,heads=4,kv_heads=2,head_dim=16,vocab=16,max_seq=16"

/* Inputs of modules are offloaded, but those of the last layer, whose backward pass follows at
 * once; what an evaluation makes never is. A stage that holds two micro batches has room for both.
 */
START_TEST (offloading_modules_changes_no_bit)
{
  static const struct
  {
    guint ranks; /* value of PRODUCT_RANKS */
    const char *fields;
    guint host_mib; /* in bf16, of a layer: x and hidden2 have 2 MiB, qkv has 4 */
  } cases[] = { { 0, "strategy=no_shard", 8 },
                { 1, "strategy=optim_grads_params recompute=full", 2 },
                { 1, "tp=2 sp=off", 6 },
                { 1, "strategy=optim pp=2", 16 } };
  ExecResult results[2][PRODUCT_MAX_RANKS] = { { { 0 } } };
  g_autoptr (PlanModel) model = plan_model_new (WIDE, NULL);
  g_auto (ProductCase) c = { 0 };
  ck_assert (simple_case_init (&c, cases[_i].ranks, 0, 0, 2));
  for (guint i = 0; i < 2; i++)
    {
      g_autoptr (GError) error = NULL;
      g_autofree char *words
          = g_strconcat ("stack=native compute=bf16 seq=16 mbs=1024 gbs=2048 ", cases[_i].fields,
                         i == 0 ? "" : " offload_modules=attn_norm+core_attn+mlp_norm", NULL);
      g_autoptr (PlanCase) of = test_case (model, c.cluster, words);
      Plan plan = of->plan;
      plan.value[PLAN_TASK] = PLAN_TASK_EVAL;
      g_autoptr (PlanCase) eval_of = test_case_of (model, c.cluster, &plan);
      c.job.of = of;
      c.job.eval_of = eval_of;
      c.job.eval_every = 1;
      ck_assert_msg (exec_run_threads (&c.job, c.ranks, TRUE, NULL, NULL, results[i], &error), "%s",
                     error ? error->message : "");
      ck_assert_uint_eq (results[i][0].trace->memory.host,
                         i == 0 ? 0 : (guint64)cases[_i].host_mib << 20);
    }
  ck_assert_mem_eq (results[0][0].eval_losses, results[1][0].eval_losses,
                    (gsize)c.job.steps * sizeof (double));
  assert_same (&c, results[0], results[1]);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-product");
  TCase *tcase = tcase_create ("product");
  tally = mmap (NULL, MAX_WORKERS * sizeof *tally, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  g_assert (tally != MAP_FAILED && product_size () % N_PARTS == 0);
  tcase_set_timeout (tcase, 36000);
  tcase_add_test (tcase, points_are_what_they_say);
  tcase_add_loop_test (tcase, ranks_do_not_matter_where_the_sums_coincide, 0, 16);
  tcase_add_loop_test (tcase, recomputing_changes_no_bit, 0, 24);
  tcase_add_loop_test (tcase, offloading_modules_changes_no_bit, 0, 4);
  tcase_add_loop_test (tcase, threads_equal_the_evaluator_over_the_product, (int)first_part (),
                       N_PARTS);
  tcase_add_test (tcase, every_value_was_run);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
