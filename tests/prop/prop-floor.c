/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds of the step time of pipelines against the simulator, where bounds are above the work
 * of any single stage: last stages with few layers and a costly head, gradients that take longer to
 * reduce than there is compute beside them. */
#include "config.h"

#include "advise/floor-work.h"
#include "advise/floor.h"
#include "advise/predict.h"
#include "planner/lower/lower.h"
#include "planner/plan/stages.h"
#include "planner/schedule/step-ops.h"
#include "planner/search/bound.h"
#include "tests/case.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>

/* A model of `layers` layers whose vocabulary makes an output layer as costly as some layers. */
static PlanModel *
random_model (GRand *rand, gint64 layers)
{
  static const char *const others[]
      = { "", ",window=64,window_every=2", ",experts=8,topk=2,expert_ffn=512",
          ",experts=8,topk=1,expert_ffn=1024,dense_layers=1,moe_every=1" };
  const int hidden = 512 << g_rand_int_range (rand, 0, 3);
  g_autofree char *spec = g_strdup_printf (
      "layers=%" G_GINT64_FORMAT ",hidden=%d,ffn=%d,heads=8,kv_heads=8,vocab=%d,max_seq=512%s",
      layers, hidden, hidden * g_rand_int_range (rand, 1, 5), 1024 << g_rand_int_range (rand, 0, 8),
      others[g_rand_int_range (rand, 0, 4)]);
  return plan_model_new (spec, NULL);
}

/* The next case from that seed on: a pipeline of Megatron-LM whose last stage has fewer layers. */
static void
case_init (TestCase *self, guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  *self = (TestCase){ 0 };
  while (!self->of)
    {
      static const char *const settings[] = { "",
                                              " recompute=full",
                                              " recompute=selective",
                                              " overlap_param_gather=off",
                                              " overlap_param_gather=off overlap_grad_reduce=off",
                                              " grad_comm=bf16" };
      static const char *const experts[]
          = { "", " ep=2", " ep=2 ep_overlap=on", " ep=2 ep_overlap=on ep_delay_wgrad=on" };
      const gint64 stages = 1 << g_rand_int_range (rand, 1, 4);
      const gint64 n_virtual = g_rand_int_range (rand, 1, 4), tp = g_rand_int_range (rand, 1, 3);
      const gint64 inner = n_virtual * g_rand_int_range (rand, 1, 4);
      const gint64 last = n_virtual * g_rand_int_range (rand, 1, 4);
      const gint64 group = stages + (g_rand_int_range (rand, 0, 4) == 0 && n_virtual > 1);
      const gint64 mbs = g_rand_int_range (rand, 1, 3);
      g_clear_pointer (&self->model, plan_model_free);
      g_clear_pointer (&self->cluster, plan_cluster_free);
      self->model = random_model (rand, inner * (stages - 1) + last);
      g_autofree char *nodes = g_strdup_printf ("dgx-h100:%d", 1 << g_rand_int_range (rand, 0, 4));
      self->cluster = plan_cluster_new (nodes, NULL);
      ck_assert (self->model && self->cluster);
      const gint64 devices = plan_cluster_devices (self->cluster);
      const gint64 gbs
          = group * g_rand_int_range (rand, 1, 7) * mbs * MAX (devices / stages / tp, 1);
      g_autofree char *words = g_strdup_printf (
          "stack=megatron strategy=%s pp=%" G_GINT64_FORMAT " vpp=%" G_GINT64_FORMAT
          " tp=%" G_GINT64_FORMAT " mbs=%" G_GINT64_FORMAT " gbs=%" G_GINT64_FORMAT
          " seq=512 pp_last_layers=%" G_GINT64_FORMAT "%s%s",
          g_rand_boolean (rand) ? "optim" : "no_shard", stages, n_virtual, tp, mbs, gbs, last,
          settings[g_rand_int_range (rand, 0, 6)],
          self->model->experts > 0 ? experts[g_rand_int_range (rand, 0, 4)] : "");
      Plan plan = test_plan (words);
      if (group > stages)
        plan.value[PLAN_PP_GROUP] = group;
      self->of = plan_case_new (self->model, self->cluster, &plan, NULL, NULL);
    }
}

START_TEST (floors_of_uneven_pipelines_hold)
{
  TestCase c;
  SimSummary summaries[SIM_MAX_STAGES];
  g_autoptr (GError) error = NULL;
  case_init (&c, (guint)_i);
  const AdviseInput input = { .model = c.model, .cluster = c.cluster, .plan = c.of->plan };
  const Plan *plan = &c.of->plan;
  g_autofree char *text = plan_print (plan);
  ck_assert_msg (advise_measure_case (&input, c.of, summaries, &error), "%s",
                 error ? error->message : "");
  g_autoptr (AdviseFloors) floors = advise_floors_new (&input);
  const gint64 shared_ns = advise_floors_ns (floors, plan, G_MAXINT64);
  const gint64 own_ns = advise_floors_beside_ns (floors, plan);
  ck_assert_msg (MAX (shared_ns, own_ns) <= summaries[0].step_ns,
                 "seed %d: at least %ld and %ld, simulated %ld\n%s", _i, (long)shared_ns,
                 (long)own_ns, (long)summaries[0].step_ns, text);
  test_case_clear (&c);
}
END_TEST

/* Bounds of plans whose passes run beside each other and gather weights module by module: fewer
 * gathers than two of each layer, or more, as the communication unit says. */
START_TEST (floors_hold_where_modules_gather)
{
  static const char *const units[] = { "",
                                       " comm_unit=1",
                                       " comm_unit=2",
                                       " comm_unit=20000000",
                                       " comm_unit=70000000",
                                       " comm_unit=500000000",
                                       " comm_unit=9000000000" };
  static const char *const others[] = { "", " ag_group=on", " dp_outer=2", " ep_delay_wgrad=on",
                                        " recompute=selective recompute_modules=layernorm" };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  TestCase c = { 0 };
  SimSummary summaries[SIM_MAX_STAGES];
  g_autoptr (GError) error = NULL;
  g_autofree char *spec
      = g_strdup_printf ("qwen3-30b-a3b,layers=%d,hidden=%d,heads=8,kv_heads=8,vocab=%d,"
                         "experts=8,topk=%d,expert_ffn=%d,dense_layers=%d",
                         g_rand_int_range (rand, 2, 12), 512 << g_rand_int_range (rand, 0, 3),
                         1024 << g_rand_int_range (rand, 0, 8), g_rand_int_range (rand, 2, 4),
                         512 << g_rand_int_range (rand, 0, 4), g_rand_int_range (rand, 0, 2));
  const gint64 n = g_rand_int_range (rand, 1, 7), mbs = g_rand_int_range (rand, 1, 3);
  g_autofree char *nodes = g_strdup_printf ("dgx-h100:%d", 1 << g_rand_int_range (rand, 0, 4));
  c.model = plan_model_new (spec, &error);
  c.cluster = plan_cluster_new (nodes, NULL);
  ck_assert_msg (c.model && c.cluster, "%s", error ? error->message : spec);
  g_autofree char *words = g_strdup_printf (
      "stack=megatron-fsdp strategy=optim_grads_params ep_overlap=on ep=%d mbs=%d gbs=%d "
      "seq=%d%s%s",
      2 << g_rand_int_range (rand, 0, 2), (int)mbs,
      (int)(n * mbs * plan_cluster_devices (c.cluster)), 512 << g_rand_int_range (rand, 0, 4),
      units[g_rand_int_range (rand, 0, G_N_ELEMENTS (units))],
      others[g_rand_int_range (rand, 0, G_N_ELEMENTS (others))]);
  c.of = test_case (c.model, c.cluster, words);
  const AdviseInput input = { .model = c.model, .cluster = c.cluster, .plan = c.of->plan };
  ck_assert_msg (advise_measure_case (&input, c.of, summaries, &error), "%s",
                 error ? error->message : "");
  g_autoptr (AdviseFloors) floors = advise_floors_new (&input);
  const gint64 shared_ns = advise_floors_ns (floors, &c.of->plan, G_MAXINT64);
  const gint64 own_ns = advise_floors_beside_ns (floors, &c.of->plan);
  ck_assert_msg (MAX (shared_ns, own_ns) <= summaries[0].step_ns,
                 "seed %d: at least %ld and %ld, simulated %ld\n%s\n%s", _i, (long)shared_ns,
                 (long)own_ns, (long)summaries[0].step_ns, spec, words);
  const guint64 least = plan_bound_memory (c.of);
  ck_assert_msg (least <= summaries[0].memory.device,
                 "seed %d: at least %lu, simulated %lu\n%s\n%s", _i, (unsigned long)least,
                 (unsigned long)summaries[0].memory.device, spec, words);
  test_case_clear (&c);
}
END_TEST

/* The times of host and streams in a step of so many micro batches, lowered whole, without trades.
 */
static void
sum_step (const TestCase *c, guint rank, gint64 micro_batches, gint64 *out_host_ns,
          gint64 *out_streams)
{
  Plan plan = c->of->plan;
  plan.value[PLAN_GBS]
      = micro_batches * plan.value[PLAN_MBS] * plan_data_parallel (&plan, c->cluster);
  g_autoptr (PlanCase) of = plan_case_new (c->model, c->cluster, &plan, NULL, NULL);
  g_autoptr (PlanSchedule) schedule = plan_lower (of, rank, NULL);
  const AdviseInput input = { .model = c->model, .cluster = c->cluster, .plan = plan };
  g_autoptr (SimCost) cost = advise_cost_of (&input, of, schedule, NULL);
  g_autofree gint64 *times = plan_schedule_step_times (schedule);
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      if (op->kind == PLAN_OP_TRADE)
        continue;
      *out_host_ns += times[node] * sim_cost_launch_ns (cost, node);
      out_streams[op->stream] += times[node] * sim_cost_ns (cost, node);
    }
}

START_TEST (the_repeat_of_a_pipeline_is_the_work_of_a_micro_batch)
{
  TestCase c;
  AdviseFloorWork work;
  gint64 host[2] = { 0 }, streams[2][PLAN_N_STREAMS] = { { 0 } };
  guint seed = (guint)_i;
  for (case_init (&c, seed); c.of->plan.value[PLAN_VPP] > 1; case_init (&c, seed += 1000))
    test_case_clear (&c);
  const gint64 pp = c.of->plan.value[PLAN_PP], stage = _i % pp;
  const guint rank = (guint)(stage * plan_cluster_devices (c.cluster) / pp);
  const gint64 held = plan_stage_held (&c.of->plan, stage, pp), n = MAX (3 * held + 1, pp);
  sum_step (&c, rank, n, &host[0], streams[0]);
  sum_step (&c, rank, n + 1, &host[1], streams[1]);

  Plan plan = c.of->plan;
  plan.value[PLAN_GBS] = n * plan.value[PLAN_MBS] * plan_data_parallel (&plan, c.cluster);
  g_autoptr (PlanCase) of = plan_case_new (c.model, c.cluster, &plan, NULL, NULL);
  g_autoptr (PlanSchedule) schedule = plan_lower_brief (of, rank);
  const AdviseInput input = { .model = c.model, .cluster = c.cluster, .plan = plan };
  g_autoptr (SimCost) cost = advise_cost_of (&input, of, schedule, NULL);
  ck_assert (advise_floor_work_of_repeat (schedule, cost, held, &work));
  ck_assert_int_eq (work.of[ADVISE_FLOOR_HOST], host[1] - host[0]);
  for (PlanStream s = 0; s < PLAN_N_STREAMS; s++)
    ck_assert_msg (work.of[ADVISE_FLOOR_STREAMS + s] == streams[1][s] - streams[0][s],
                   "seed %u, stage %ld, stream %d: %ld, not %ld", seed, (long)stage, (int)s,
                   (long)work.of[ADVISE_FLOOR_STREAMS + s], (long)(streams[1][s] - streams[0][s]));
  test_case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-floor");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 600);
  test_add_share (tcase, floors_of_uneven_pipelines_hold, 300);
  test_add_share (tcase, the_repeat_of_a_pipeline_is_the_work_of_a_micro_batch, 200);
  suite_add_tcase (suite, tcase);
  tcase = tcase_create ("modules");
  tcase_set_timeout (tcase, 600);
  test_add_share (tcase, floors_hold_where_modules_gather, 300);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
