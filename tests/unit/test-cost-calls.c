/* SPDX-License-Identifier: Apache-2.0 */
/* What collectives and routers cost by the way in which a framework calls them: by buckets of
 * bytes, all in one call, as lists of tensors, as small kernels one by one; and what rotary
 * positions cost so. */
#include "config.h"

#include "tests/unit/test-cost-case.h"

#include <stdlib.h>

/* Gradients in bf16, in the order in which autograd makes them: 8 MiB of the head, then 6 and 2 MiB
 * in each layer. */
#define BUCKETS \
  "schedule 2 rank=0 ranks=4\n" \
  "group all size=4 stride=1\n" \
  "buffer head elements=4194304 dtype=fp32 category=main_grads\n" \
  "buffer grads[4] elements=4194304 dtype=fp32 category=main_grads\n" \
  "buffer half elements=4194304 dtype=bf16 category=main_grads\n" \
  "buffer weights elements=4000 dtype=bf16 category=weights\n" \
  "buffer more[2] elements=4000 dtype=bf16 category=weights\n" \
  "section setup\n" \
  "all_gather gather group=all out=weights in=weights count=1000\n" \
  "all_gather gather group=all out=more in=more count=1000\n" \
  "section step\n" \
  "accumulate compute out=head in=half count=4194304\n" \
  "accumulate compute out=head in=half count=4194304\n" \
  "all_reduce reduce group=all buf=head count=4194304\n" \
  "repeat l from=0 count=4 step=1\n" \
  "accumulate compute out=grads[l] in=half count=3145728\n" \
  "accumulate compute out=grads[l]+3145728 in=half count=1048576\n" \
  "all_reduce reduce group=all buf=grads[l] count=4194304\n" \
  "end\n" \
  "all_gather gather group=all out=weights in=weights count=1000\n" \
  "all_gather gather group=all out=more in=more count=1000\n" \
  "section teardown\n"

static gint64
nth_collective_ns (const PlanSchedule *schedule, const SimCost *cost, guint n)
{
  for (guint node = 0;; node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      if (op->kind < PLAN_N_OPS && plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE && n-- == 0)
        return sim_cost_ns (cost, node);
    }
}

/* What one call gathers starts once. Gradients are reduced by buckets of 10 MiB. The head's 8 MiB,
 * which count once though they are added up twice, fill the first with the 6 of the first layer;
 * its 2 and the 8 of the second layer fill the second. From there on three layers fill two buckets,
 * 6 + 2 + 6 and 2 + 6 + 2. The model walks 32 layers, so these have 2 + 20 calls. */
START_TEST (each_bucket_starts_once)
{
  SimParams params = ideal ();
  PlanCluster cluster = { .name = (char *)"test",
                          .nodes = 1,
                          .devices_per_node = 4,
                          .memory_bytes_per_s = 1e15,
                          .link_bytes_per_s = 1e15 };
  const PlanStack stack = { .memory.allocation_bytes = 1,
                            .weights.whole = PLAN_WHOLE_AT_ONCE,
                            .grads.reduce_bytes = 10 * 1024 * 1024 };
  g_autoptr (PlanSchedule) schedule = parse (BUCKETS);
  SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &plain, .params = &params };
  params.value[SIM_PARAM_SIMPLE_NS] = 1e6;
  g_autoptr (SimCost) each = cost_of (&input);
  input.stack = &stack;
  g_autoptr (SimCost) together = cost_of (&input);
  const double expected[] = { 1, 0, 0, 22.0 / 32, 1, 0 };
  for (guint i = 0; i < G_N_ELEMENTS (expected); i++)
    {
      const double starts = 1e-6 * (double)nth_collective_ns (schedule, together, i);
      ck_assert_int_le (ABS (nth_collective_ns (schedule, each, i) - 1000000), 100);
      ck_assert_msg (ABS (starts - expected[i]) < 1e-3, "%u: %g", i, starts);
    }
}
END_TEST

#define SCATTERED \
  "schedule 2 rank=0 ranks=4\n" \
  "group all size=4 stride=1\n" \
  "buffer grads[4] elements=4194304 dtype=fp32 category=main_grads\n" \
  "buffer half elements=4194304 dtype=bf16 category=main_grads\n" \
  "section setup\n" \
  "section step\n" \
  "repeat l from=0 count=4 step=1\n" \
  "accumulate compute out=grads[l] in=half count=3145728\n" \
  "accumulate compute out=grads[l]+3145728 in=half count=1048576\n" \
  "reduce_scatter reduce group=all out=grads[l] in=grads[l] count=1048576\n" \
  "end\n" \
  "section teardown\n"

/* Rings over a network of high latency. A bucket of 10 MiB is filled by gradients of 6, 2 and 6
 * MiB, the next by 2, 6 and 2, so 32 layers have 21 calls. Each waits three times 50 us for a free
 * buffer. The bytes of all calls, 12 MiB a layer at 200 GB/s, are sent once, half of them while it
 * waits. */
START_TEST (rings_of_several_calls_send_once)
{
  SimParams params = ideal ();
  PlanCluster cluster = { .name = (char *)"test",
                          .nodes = 2,
                          .devices_per_node = 2,
                          .nvlink_domain = 2,
                          .memory_bytes_per_s = 1e15,
                          .link_bytes_per_s = 1e15,
                          .nic_bytes_per_s = 100e9,
                          .nic_latency_ns = 45000 };
  const PlanStack stack = { .memory.allocation_bytes = 1, .grads.reduce_bytes = 10 * 1024 * 1024 };
  g_autoptr (PlanSchedule) schedule = parse (SCATTERED);
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &stack, .params = &params };
  params.value[SIM_PARAM_SIMPLE_NET_HOP] = 2;
  g_autoptr (SimCost) cost = cost_of (&input);
  const double expected = 21.0 / 32 * 3 * 50000 + (12 << 20) / 200.0 / 2;
  ck_assert_int_le (ABS (nth_collective_ns (schedule, cost, 0) - (gint64)expected), 1);
}
END_TEST

/* With a sharded optimizer one call sums all gradients, and only the first of them pays for its
 * start; without sharding each pays. */
START_TEST (one_sum_of_all_gradients_starts_once)
{
  SimParams params = ideal ();
  PlanCluster cluster = { .name = (char *)"test",
                          .nodes = 1,
                          .devices_per_node = 4,
                          .memory_bytes_per_s = 1e15,
                          .link_bytes_per_s = 1e15 };
  const PlanStack stack = { .memory.allocation_bytes = 1, .grads.fresh = PLAN_GRADS_LEFT };
  g_autoptr (PlanSchedule) schedule = parse (BUCKETS);
  Plan plan;
  plan_init (&plan);
  const SimCostInput input = {
    .schedule = schedule, .cluster = &cluster, .stack = &stack, .plan = &plan, .params = &params
  };
  params.value[SIM_PARAM_SIMPLE_NS] = 1e6;
  for (gint64 strategy = PLAN_STRATEGY_NO_SHARD; strategy <= PLAN_STRATEGY_OPTIM; strategy++)
    {
      plan.value[PLAN_STRATEGY] = strategy;
      g_autoptr (SimCost) cost = cost_of (&input);
      ck_assert_int_ge (nth_collective_ns (schedule, cost, 2), 1000000);
      if (strategy == PLAN_STRATEGY_OPTIM)
        ck_assert_int_le (nth_collective_ns (schedule, cost, 3), 100);
      else
        ck_assert_int_ge (nth_collective_ns (schedule, cost, 3), 1000000);
    }
}
END_TEST

/* Lists of tensors that four ranks gather: one of the embedding, three of a layer. The host cuts
 * out each rank's piece of each tensor in 10 ns, and issues its copy, which takes 100 ns on the
 * device or as long as its bytes do. Before that all bytes are moved once: 4 KB, read and
 * written at 1 GB/s, in 8 us, longer than the 1200 ns of twelve copies; 40 bytes in 80 ns, which
 * is less. */
START_TEST (lists_are_cut_and_copied)
{
  SimParams params = ideal ();
  PlanCluster cluster = { .name = (char *)"test",
                          .nodes = 1,
                          .devices_per_node = 4,
                          .memory_bytes_per_s = 1e9,
                          .link_bytes_per_s = 1e15 };
  const PlanStack stack = { .memory.allocation_bytes = 1,
                            .weights.whole = PLAN_WHOLE_AT_ONCE,
                            .weights.unit_tensors = 3,
                            .weights.piece_ns = 10,
                            .weights.copy_ns = 100 };
  g_autoptr (PlanSchedule) schedule
      = parse ("schedule 2 rank=0 ranks=4\n"
               "group all size=4 stride=1\n"
               "buffer embed elements=40 dtype=u8 category=weights\n"
               "buffer norm[2] elements=40 dtype=u8 category=weights\n"
               "buffer layer[2] elements=4000 dtype=u8 category=weights\n"
               "section setup\nsection step\n"
               "all_gather gather group=all out=embed in=embed count=10\n"
               "repeat l from=0 count=2 step=1\n"
               "all_gather gather group=all out=norm[l] in=norm[l] count=10\n"
               "all_gather gather group=all out=layer[l] in=layer[l] count=1000\n"
               "end\nsection teardown\n");
  SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &plain, .params = &params };
  g_autoptr (SimCost) one = cost_of (&input);
  input.stack = &stack;
  g_autoptr (SimCost) lists = cost_of (&input);
  const gint64 device_ns[] = { 80 + 400, 80 + 1200, 8000 + 8000 },
               host_ns[] = { 4 * 10, 12 * 10, 12 * 10 };
  for (guint node = 0, n = 0; n < G_N_ELEMENTS (host_ns); node++)
    if (plan_schedule_node (schedule, node)->kind == PLAN_OP_ALL_GATHER)
      {
        ck_assert_int_le (ABS (sim_cost_ns (lists, node) - sim_cost_ns (one, node) - device_ns[n]),
                          1);
        ck_assert_int_eq (sim_cost_launch_ns (lists, node), host_ns[n]);
        n++;
      }
}
END_TEST

/* Gradients that are scaled where they lie are read twice and written once. */
START_TEST (clipping_in_place_moves_more)
{
  SimParams params = ideal ();
  PlanCluster cluster
      = { .name = (char *)"test", .nodes = 1, .devices_per_node = 1, .memory_bytes_per_s = 1e9 };
  PlanStack stack = { .memory.allocation_bytes = 1 };
  g_autoptr (PlanSchedule) schedule
      = parse ("schedule 2 rank=0 ranks=1\n"
               "buffer grads elements=1000 dtype=fp32 category=main_grads\n"
               "buffer sum elements=1 dtype=fp32 category=workspace\n"
               "section setup\nsection step\n"
               "norm_sq compute sum=sum in=grads count=1000\n"
               "section teardown\n");
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &stack, .params = &params };
  guint node = 0;
  while (plan_schedule_node (schedule, node)->kind != PLAN_OP_NORM_SQ)
    node++;
  g_autoptr (SimCost) measured = cost_of (&input);
  stack.optimizer.kind = PLAN_OPTIMIZER_TORCH;
  g_autoptr (SimCost) clipped = cost_of (&input);
  ck_assert_int_eq (sim_cost_ns (clipped, node), 3 * sim_cost_ns (measured, node));
}
END_TEST

#define ATTENTION(more) \
  "schedule 2 rank=0 ranks=1\n" \
  "buffer out elements=1024 dtype=bf16 category=activations\n" \
  "buffer qkv elements=3072 dtype=bf16 category=activations\n" \
  "buffer lse elements=128 dtype=fp32 category=activations\n" \
  "section setup\n" \
  "attention compute out=out lse=lse qkv=qkv batch=1 seq=64 heads=2 kv_heads=2 head_dim=8 " \
  "keys=64" more \
  "\nattention_bwd compute dqkv=qkv dout=out out=out lse=lse qkv=qkv batch=1 seq=64 heads=2 " \
  "kv_heads=2 head_dim=8 keys=64" more "\nsection step\nsection teardown\n"

/* 4096 pairs are seen. Batched GEMMs move 12 bytes of each forwards and 26 backwards, in bf16,
 * where cuDNN has no graph: with bounded scores. Kernels of other stacks keep scores to themselves.
 */
START_TEST (scores_go_through_memory)
{
  SimParams params = ideal ();
  PlanCluster cluster = { .name = (char *)"test",
                          .kind = PLAN_DEVICE_GPU,
                          .nodes = 1,
                          .devices_per_node = 1,
                          .compute_capability = 90,
                          .memory_bytes_per_s = 1e9 };
  PlanStack stack = { .memory.allocation_bytes = 1 };
  g_autoptr (PlanSchedule) usual = parse (ATTENTION ("")), bounded = parse (ATTENTION (" cap=5"));
  SimCostInput input
      = { .schedule = usual, .cluster = &cluster, .stack = &stack, .params = &params };
  cluster.peak_flops[PLAN_DTYPE_BF16] = 1e12;
  for (PlanKernels kernels = PLAN_KERNELS_TRANSFORMER_ENGINE; kernels <= PLAN_KERNELS_OWN;
       kernels++)
    {
      const gint64 is_own = kernels == PLAN_KERNELS_OWN ? 1 : 0;
      stack.layer.kernels = kernels;
      input.schedule = usual;
      g_autoptr (SimCost) fused = cost_of (&input);
      input.schedule = bounded;
      g_autoptr (SimCost) batched = cost_of (&input);
      ck_assert_int_eq (sim_cost_ns (batched, 0) - sim_cost_ns (fused, 0), is_own * 4096 * 12);
      ck_assert_int_eq (sim_cost_ns (batched, 1) - sim_cost_ns (fused, 1), is_own * 4096 * 26);
    }
}
END_TEST

#define ROUTER \
  "schedule 2 rank=0 ranks=1\n" \
  "buffer probs elements=1024 dtype=fp32 category=activations\n" \
  "buffer saved elements=1024 dtype=fp32 category=activations\n" \
  "buffer map elements=1024 dtype=u8 category=activations\n" \
  "section setup\nsection step\n" \
  "route compute probs=probs saved=saved map=map logits=probs rows=64 experts=16 topk=2\n" \
  "route_bwd compute dlogits=probs dprobs=probs saved=saved map=map rows=64 experts=16 topk=2\n" \
  "section teardown\n"

/* Routers, and how many small ops each pass issues for them and for their dispatcher, by hand. */
static const struct
{
  const char *dispatcher, *fusion;
  PlanRouterScore score;
  gint64 groups, forward, backward;
} routers[] = {
  { "hybridep", "off", PLAN_ROUTER_SOFTMAX, 0, 20, 11 },
  { "alltoall", "off", PLAN_ROUTER_SOFTMAX, 0, 20 + 3, 11 },
  { "deepep", "off", PLAN_ROUTER_SOFTMAX, 0, 20 + 5, 11 + 2 },
  { "alltoall", "off", PLAN_ROUTER_SIGMOID, 8, 30 + 9 + 3, 25 },
  { "hybridep", "off", PLAN_ROUTER_SIGMOID, 0, 30, 25 },
  { "deepep", "on", PLAN_ROUTER_SIGMOID, 8, 7, 6 },
};

/* The host issues every one of a router's small ops, and the device starts every one. */
START_TEST (routers_issue_op_by_op)
{
  g_autoptr (GError) error = NULL;
  SimParams params = ideal ();
  params.value[SIM_PARAM_KERNEL_NS] = 100;
  const PlanCluster cluster = { .name = (char *)"test", .memory_bytes_per_s = 1e18 };
  const PlanStack stack = { .host = { .launch_ns = { [PLAN_LAUNCH_KERNEL] = 7 },
                                      .routing = { .by_softmax = { 20, 11 },
                                                   .by_sigmoid = { 30, 25 },
                                                   .fused = { 7, 6 },
                                                   .groups = { 9, 0 },
                                                   .counts = { 3, 0 },
                                                   .lists = { 5, 2 } } } };
  const PlanModel model
      = { .router_score = routers[_i].score, .router_groups = routers[_i].groups };
  Plan plan;
  plan_init (&plan);
  ck_assert (plan_set (&plan, "moe_dispatcher", routers[_i].dispatcher, &error));
  ck_assert (plan_set (&plan, "moe_router_fusion", routers[_i].fusion, &error));
  g_autoptr (PlanSchedule) schedule = parse (ROUTER);
  const SimCostInput input = { .schedule = schedule,
                               .cluster = &cluster,
                               .stack = &stack,
                               .model = &model,
                               .plan = &plan,
                               .params = &params };
  g_autoptr (SimCost) cost = cost_of (&input);
  const gint64 ops[] = { routers[_i].forward, routers[_i].backward };
  for (guint pass = 0; pass < 2; pass++)
    {
      ck_assert_int_eq (sim_cost_launch_ns (cost, pass), 7 * ops[pass]);
      ck_assert_uint_eq (sim_cost_launches (cost, pass), (guint)ops[pass]);
      ck_assert_int_eq (sim_cost_ns (cost, pass), 100 * ops[pass]);
    }
}
END_TEST

#define TURNS \
  "schedule 2 rank=0 ranks=1\n" \
  "buffer qkv elements=64 dtype=bf16 category=activations\n" \
  "buffer places elements=4 dtype=i32 category=activations\n" \
  "section setup\nsection step\n" \
  "rope compute qkv=qkv places=places rows=4 seq=4 heads=2 kv_heads=1 head_dim=4 inverse=0\n" \
  "rope compute qkv=qkv places=places rows=4 seq=4 heads=2 kv_heads=1 head_dim=4 inverse=1\n" \
  "section teardown\n"

static const struct
{
  gint64 stack;
  PlanRope rope;
  gboolean is_fused;
} turns[] = {
  { PLAN_STACK_MEGATRON, { .scaling = PLAN_ROPE_SCALING_YARN, .factor = 32, .mscale = 1 }, FALSE },
  { PLAN_STACK_MEGATRON_FSDP,
    { .scaling = PLAN_ROPE_SCALING_YARN, .factor = 32, .mscale = 1 },
    FALSE },
  { PLAN_STACK_FSDP2, { .scaling = PLAN_ROPE_SCALING_YARN, .factor = 32, .mscale = 1 }, TRUE },
  { PLAN_STACK_MEGATRON,
    { .scaling = PLAN_ROPE_SCALING_YARN, .factor = 32, .mscale = 1, .mscale_all = 1 },
    TRUE },
  { PLAN_STACK_MEGATRON, { .factor = 1 }, TRUE },
};

/* Queries and keys are 48 elements. A fused kernel reads and writes all 64, and 4 places. */
START_TEST (scaled_turns_are_small_kernels)
{
  SimParams params = ideal ();
  const PlanCluster cluster = { .name = (char *)"test", .memory_bytes_per_s = 1e9 };
  const PlanStack stack
      = { .id = turns[_i].stack, .host = { .launch_ns = { [PLAN_LAUNCH_KERNEL] = 7 } } };
  const PlanModel model = { .rope = turns[_i].rope };
  g_autoptr (PlanSchedule) schedule = parse (TURNS);
  const SimCostInput input = {
    .schedule = schedule, .cluster = &cluster, .stack = &stack, .model = &model, .params = &params
  };
  g_autoptr (SimCost) cost = cost_of (&input);
  const gint64 fused = 2 * 64 * 2 + 4 * 4, passes[] = { 12 - 2, 17 - 2 }, ops[] = { 24, 22 };
  for (guint pass = 0; pass < 2; pass++)
    {
      const gint64 n = turns[_i].is_fused ? 1 : ops[pass];
      const gint64 more = turns[_i].is_fused ? 0 : passes[pass] * 48 * 2;
      ck_assert_int_eq (sim_cost_launch_ns (cost, pass), 7 * n);
      ck_assert_uint_eq (sim_cost_launches (cost, pass), (guint)n);
      ck_assert_int_eq (sim_cost_ns (cost, pass), fused + more);
    }
}
END_TEST

#define SENT_TOKENS \
  "schedule 2 rank=0 ranks=4\n" \
  "group all size=4 stride=1\n" \
  "buffer rows elements=4096 dtype=bf16 category=activations\n" \
  "buffer more elements=4096 dtype=bf16 category=activations\n" \
  "section setup\nsection step\n" \
  "send_tokens compute group=all out=rows in=more out_rows=64 in_rows=64 cols=64 near=48 far=0\n" \
  "section teardown\n"

/* Tokens that stay within a node take the time of their 48 rows of 128 bytes over the link, whether
 * or not there is a network. */
START_TEST (tokens_within_a_node_need_no_network)
{
  SimParams params = ideal ();
  Plan plan;
  plan_init (&plan);
  const PlanStack stack = { .memory.allocation_bytes = 1 };
  g_autoptr (PlanSchedule) schedule = parse (SENT_TOKENS);
  for (guint i = 0; i < 2; i++)
    {
      const PlanCluster cluster = { .name = (char *)"test",
                                    .nodes = 1,
                                    .devices_per_node = 4,
                                    .memory_bytes_per_s = 1e15,
                                    .link_bytes_per_s = 48 * 128e6,
                                    .nic_bytes_per_s = i * 1e9 };
      const SimCostInput input = {
        .schedule = schedule, .cluster = &cluster, .stack = &stack, .plan = &plan, .params = &params
      };
      g_autoptr (SimCost) cost = cost_of (&input);
      ck_assert_int_eq (nth_collective_ns (schedule, cost, 0), 1000);
    }
}
END_TEST

#define LAYER_AND_PLAIN \
  "schedule 2 rank=0 ranks=4\n" \
  "group all size=4 stride=1\n" \
  "buffer layer elements=4000000 dtype=e4m3 category=gathered\n" \
  "buffer plain elements=40000 dtype=bf16 category=gathered\n" \
  "event done\n" \
  "section setup\n" \
  "section step\n" \
  "wait compute record=done\n" \
  "all_gather gather group=all out=layer in=layer count=1000000 wait=done\n" \
  "wait compute record=done\n" \
  "all_gather gather group=all out=plain in=plain count=10000 wait=done\n" \
  "section teardown\n"

/* A small gather behind a large one is issued with it by our own runtime on GPUs: it takes the time
 * of its bytes alone, here 1000 ns for each MB that a rank gets, and the host nothing. */
START_TEST (a_small_gather_starts_with_a_large_one)
{
  SimParams params = ideal ();
  PlanCluster cluster = { .name = (char *)"test",
                          .nodes = 1,
                          .devices_per_node = 4,
                          .memory_bytes_per_s = 1e15,
                          .link_bytes_per_s = 1e15 };
  const PlanStack joins
      = { .memory.allocation_bytes = 1,
          .host = { .joins = TRUE, .launch_ns = { [PLAN_LAUNCH_COLLECTIVE] = 5000 } } };
  g_autoptr (PlanSchedule) schedule = parse (LAYER_AND_PLAIN);
  SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &joins, .params = &params };
  const guint first = plan_schedule_section_node (schedule, PLAN_SECTION_STEP) + 1;
  params.value[SIM_PARAM_SIMPLE_NS] = 20000;
  params.value[SIM_PARAM_LAUNCH] = 1;
  cluster.link_bytes_per_s = 1e12;
  for (guint i = 0; i < 3; i++)
    {
      PlanStack stack = joins;
      stack.host.joins = i > 0;
      cluster.kind = i == 1 ? PLAN_DEVICE_CPU : PLAN_DEVICE_GPU;
      input.stack = &stack;
      g_autoptr (SimCost) cost = cost_of (&input);
      const gint64 start_ns = i == 2 ? 0 : 20000;
      ck_assert_int_eq (sim_cost_ns (cost, first), 20000 + 3000);
      ck_assert_int_eq (sim_cost_launch_ns (cost, first), 5000);
      ck_assert_int_eq (sim_cost_launches (cost, first), 2);
      ck_assert_int_eq (sim_cost_ns (cost, first + 2), start_ns + 60);
      ck_assert_int_eq (sim_cost_launch_ns (cost, first + 2), i == 2 ? 0 : 5000);
      ck_assert_int_eq (sim_cost_launches (cost, first + 2), i == 2 ? 1 : 2);
    }
}
END_TEST

static const struct
{
  const char *cluster, *params;
} defaults[] = {
  { "dgx-a100", "default-ampere-5" },       { "dgx-h100", "default-hopper-5" },
  { "dgx-b200", "default-blackwell-5" },    { "mi300x-8x", "default-cdna3-1" },
  { "mi325x-8x", "default-cdna3-1000w-1" },
};

START_TEST (a_device_has_its_architecture_s_defaults)
{
  g_autoptr (PlanCluster) cluster = plan_cluster_new (defaults[_i].cluster, NULL);
  ck_assert_str_eq (sim_params_default (cluster)->id, defaults[_i].params);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cost-calls");
  TCase *tcase = tcase_create ("cost-calls");
  tcase_add_test (tcase, each_bucket_starts_once);
  tcase_add_test (tcase, rings_of_several_calls_send_once);
  tcase_add_test (tcase, a_small_gather_starts_with_a_large_one);
  tcase_add_test (tcase, one_sum_of_all_gradients_starts_once);
  tcase_add_test (tcase, lists_are_cut_and_copied);
  tcase_add_test (tcase, clipping_in_place_moves_more);
  tcase_add_test (tcase, scores_go_through_memory);
  tcase_add_loop_test (tcase, routers_issue_op_by_op, 0, G_N_ELEMENTS (routers));
  tcase_add_loop_test (tcase, scaled_turns_are_small_kernels, 0, G_N_ELEMENTS (turns));
  tcase_add_test (tcase, tokens_within_a_node_need_no_network);
  tcase_add_loop_test (tcase, a_device_has_its_architecture_s_defaults, 0, G_N_ELEMENTS (defaults));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
