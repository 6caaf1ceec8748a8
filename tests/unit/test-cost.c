/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/case.h"
#include "tests/unit/test-cost-case.h"

#include <stdlib.h>
#include <string.h>

static const PlanStack frugal = { .memory.allocation_bytes = 1, .host.cta_policy = PLAN_CTA_ZERO };

/* ns of out[m,n] = a[m,k] b[n,k] with `processors` at 1 TFLOP/s and ample memory bandwidth. */
static gint64
product_ns (const SimParams *params, gint64 processors, gint64 m, gint64 n, gint64 k)
{
  g_autofree char *text = g_strdup_printf (
      "schedule 2 rank=0 ranks=1\n"
      "buffer out elements=%" G_GINT64_FORMAT " dtype=bf16 category=activations\n"
      "buffer a elements=%" G_GINT64_FORMAT " dtype=bf16 category=activations\n"
      "buffer b elements=%" G_GINT64_FORMAT " dtype=bf16 category=weights\n"
      "section setup\ngemm compute out=out a=a b=b m=%" G_GINT64_FORMAT " n=%" G_GINT64_FORMAT
      " k=%" G_GINT64_FORMAT " layout=1\nsection step\nsection teardown\n",
      m * n, m * k, n * k, m, n, k);
  g_autoptr (PlanSchedule) schedule = parse (text);
  const PlanCluster cluster = { .name = (char *)"test",
                                .nodes = 1,
                                .devices_per_node = 1,
                                .sm_count = processors,
                                .memory_bytes_per_s = 1e15,
                                .peak_flops = { [PLAN_DTYPE_BF16] = 1e12 } };
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &plain, .params = params };
  g_autoptr (SimCost) cost = cost_of (&input);
  return sim_cost_ns (cost, 0);
}

/* ns of four experts with 128 rows each on four processors with tiles of 128 x 256. */
static gint64
experts_ns (PlanKernels kernels, PlanDeviceKind kind)
{
  g_autoptr (PlanSchedule) schedule
      = parse ("schedule 2 rank=0 ranks=1\n"
               "buffer out elements=131072 dtype=bf16 category=activations\n"
               "buffer a elements=2097152 dtype=bf16 category=activations\n"
               "buffer b elements=4194304 dtype=bf16 category=weights\n"
               "section setup\ngrouped_gemm compute out=out a=a b=b m=512 n=256 k=4096 layout=1 "
               "groups=4\nsection step\nsection teardown\n");
  SimParams params = ideal ();
  params.value[SIM_PARAM_PRODUCT_TILE_2] = params.value[SIM_PARAM_PRODUCT_TILE_4] = 0.01;
  params.value[SIM_PARAM_PRODUCT_TILE_8] = 0.01;
  const PlanStack stack = { .layer.kernels = kernels, .memory.allocation_bytes = 1 };
  const PlanCluster cluster = { .name = (char *)"test",
                                .kind = kind,
                                .nodes = 1,
                                .devices_per_node = 1,
                                .sm_count = 4,
                                .memory_bytes_per_s = 1e15,
                                .peak_flops = { [PLAN_DTYPE_BF16] = 1e12 } };
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &stack, .params = &params };
  g_autoptr (SimCost) cost = cost_of (&input);
  return sim_cost_ns (cost, 0);
}

/* A tile of each expert at once, or one tile after the other, cut in eight for four processors. */
START_TEST (products_of_experts_are_side_by_side_or_not)
{
  const gint64 tile_ns = 2 * 128 * 256 * 4096 / 250, all_ns = 4 * tile_ns;
  const gint64 own_ns = experts_ns (PLAN_KERNELS_OWN, PLAN_DEVICE_GPU);
  ck_assert_int_le (ABS (experts_ns (PLAN_KERNELS_TRANSFORMER_ENGINE, PLAN_DEVICE_GPU) - tile_ns),
                    1);
  ck_assert_int_gt (own_ns, tile_ns);
  ck_assert_int_lt (own_ns, all_ns);
}
END_TEST

/* Four processors, tiles of 128 x 256 only: the fifth tile takes a wave of its own, unless the
 * inner dimension is cut, here in eight: 40 parts in 10 waves of an eighth. */
START_TEST (products_go_in_waves)
{
  SimParams params = ideal ();
  params.value[SIM_PARAM_PRODUCT_TILE_2] = params.value[SIM_PARAM_PRODUCT_TILE_4] = 0.01;
  params.value[SIM_PARAM_PRODUCT_TILE_8] = 0.01;
  const gint64 tile_ns = 2 * 128 * 256 * 4096 / 250; /* a quarter of 1 TFLOP/s */
  const gint64 part_ns = 8 * 640 * 256 * 8 / 1000000;
  ck_assert_int_le (ABS (product_ns (&params, 4, 512, 256, 4096) - tile_ns), 1);
  ck_assert_int_le (ABS (product_ns (&params, 4, 384, 256, 4096) - (tile_ns * 3 / 4 + 3)), 2);
  ck_assert_int_le (ABS (product_ns (&params, 4, 640, 256, 4096) - (tile_ns * 10 / 8 + part_ns)),
                    4);
  /* where the number of processors is unknown only arithmetic counts */
  ck_assert_int_le (ABS (product_ns (&params, 0, 384, 256, 4096) - tile_ns * 3 / 4), 1);
}
END_TEST

START_TEST (short_and_odd_products_pay)
{
  SimParams params = ideal ();
  const gint64 whole = product_ns (&params, 4, 512, 512, 4096);
  params.value[SIM_PARAM_PRODUCT_UNALIGNED] = 0.5;
  const gint64 odd = product_ns (&params, 4, 512, 512, 4095);
  ck_assert_int_eq (product_ns (&params, 4, 512, 512, 4096), whole);
  ck_assert_int_gt (odd, 19 * whole / 10);
  params.value[SIM_PARAM_PRODUCT_FILL] = 512; /* 256 elements of bf16 */
  const gint64 deep = product_ns (&params, 4, 512, 512, 4096);
  const gint64 shallow = product_ns (&params, 4, 512, 512, 256);
  ck_assert_int_le (ABS (deep - whole * 17 / 16), 2);
  ck_assert_int_le (ABS (shallow - whole * 2 / 16), 2);
  params.value[SIM_PARAM_PRODUCT_NS] = 77;
  ck_assert_int_eq (product_ns (&params, 4, 512, 512, 256), shallow + 77);
}
END_TEST

/* cuDNN 9.19 on one H200, 64 query and 8 key heads of 128, causal, one sequence (cudnn-frontend,
 * benchmark/sdpa_benchmark_training): milliseconds forward and backward. */
static const struct
{
  gint64 seq;
  double forward_ms, backward_ms;
} attention[] = { { 2048, 0.142, 0.464 },
                  { 4096, 0.465, 1.450 },
                  { 8192, 1.708, 5.083 },
                  { 16384, 6.531, 19.00 },
                  { 32768, 25.57, 75.69 } };

START_TEST (attention_follows_its_curve)
{
  const gint64 seq = attention[_i].seq;
  g_autofree char *text = g_strdup_printf (
      "schedule 2 rank=0 ranks=1\n"
      "buffer out elements=%" G_GINT64_FORMAT " dtype=bf16 category=activations\n"
      "buffer qkv elements=%" G_GINT64_FORMAT " dtype=bf16 category=activations\n"
      "buffer lse elements=%" G_GINT64_FORMAT " dtype=fp32 category=activations\n"
      "section setup\n"
      "attention compute out=out lse=lse qkv=qkv batch=1 seq=%" G_GINT64_FORMAT
      " heads=64 kv_heads=8 head_dim=128 keys=%" G_GINT64_FORMAT "\n"
      "attention_bwd compute dqkv=qkv dout=out out=out lse=lse qkv=qkv batch=1 "
      "seq=%" G_GINT64_FORMAT " heads=64 kv_heads=8 head_dim=128 keys=%" G_GINT64_FORMAT "\n"
      "section step\nsection teardown\n",
      seq * 64 * 128, seq * 80 * 128, seq * 64, seq, seq, seq, seq);
  g_autoptr (PlanSchedule) schedule = parse (text);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("h200-141gb:1", NULL);
  const SimCostInput input = { .schedule = schedule, .cluster = cluster, .stack = &plain };
  g_autoptr (SimCost) cost = cost_of (&input);
  const double forward = 1e-6 * (double)sim_cost_ns (cost, 0) / attention[_i].forward_ms;
  const double backward = 1e-6 * (double)sim_cost_ns (cost, 1) / attention[_i].backward_ms;
  ck_assert_msg (ABS (forward - 1) < 0.05, "%d: forward %.3f", (int)seq, forward);
  ck_assert_msg (ABS (backward - 1) < 0.06, "%d: backward %.3f", (int)seq, backward);
}
END_TEST

#define FOUR_RANKS \
  "schedule 2 rank=0 ranks=4\n" \
  "group all size=4 stride=1\n" \
  "buffer in elements=8000000 dtype=u8 category=weights\n" \
  "buffer out elements=32000000 dtype=u8 category=gathered\n" \
  "section setup\n" \
  "all_gather gather group=all out=out in=in count=8000000\n" \
  "all_reduce reduce group=all buf=out count=32000000\n" \
  "section step\nsection teardown\n"

/* Rings by hand: 8 MB per rank gathered by 4 ranks, inside a node and on two of them. */
START_TEST (rings_take_the_pace_of_the_slowest_link)
{
  SimParams params = ideal ();
  PlanCluster cluster = { .name = (char *)"test",
                          .nodes = 1,
                          .devices_per_node = 4,
                          .memory_bytes_per_s = 1e12,
                          .link_bytes_per_s = 200e9,
                          .link_latency_ns = 1000,
                          .nic_bytes_per_s = 10e9,
                          .nic_latency_ns = 5000 };
  g_autoptr (PlanSchedule) schedule = parse (FOUR_RANKS);
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &plain, .params = &params };
  params.value[SIM_PARAM_RING_SHARE] = 0.5;
  params.value[SIM_PARAM_TREE_SHARE] = 0.1;
  params.value[SIM_PARAM_SIMPLE_NS] = 7;
  params.value[SIM_PARAM_SIMPLE_HOP] = 2;
  g_autoptr (SimCost) inside = cost_of (&input);
  /* 24 MB over 100 GB/s, three hops */
  ck_assert_int_eq (sim_cost_ns (inside, 0), 240000 + 3 * 2000 + 7);
  ck_assert_int_eq (sim_cost_ns (inside, 1), 2 * (240000 + 3 * 2000) + 7);
  cluster.nodes = cluster.devices_per_node = 2;
  params.value[SIM_PARAM_NET_NS] = 11;
  g_autoptr (SimCost) across = cost_of (&input);
  /* two cards of 10 GB/s per node; what is first in a node crosses to the other one and back to the
   * last that lacks it, with one hop inside */
  ck_assert_int_eq (sim_cost_ns (across, 0), 1200000 + 2000 + 2 * 5000 + 7 + 11);
}
END_TEST

#define SMALL_GATHER \
  "schedule 2 rank=0 ranks=4\n" \
  "group all size=4 stride=1\n" \
  "buffer in elements=1000 dtype=u8 category=weights\n" \
  "buffer out elements=4000 dtype=u8 category=gathered\n" \
  "section setup\n" \
  "all_gather gather group=all out=out in=in count=1000\n" \
  "section step\nsection teardown\n"

/* Hops of 50 us: 2 x 5 us by the protocol, and 40 us of the network's own beyond the usual 5. Three
 * chunks go over each, two in 100 us, there and back, where eight fit into the buffers: 150 us, and
 * half of the bytes' 3 kB at 20 GB/s. With eight under way those 100 us let all three through. */
START_TEST (far_networks_hold_rings_up)
{
  SimParams params = ideal ();
  PlanCluster cluster = { .name = (char *)"test",
                          .nodes = 2,
                          .devices_per_node = 2,
                          .nvlink_domain = 2,
                          .memory_bytes_per_s = 1e12,
                          .link_bytes_per_s = 1000e9,
                          .nic_bytes_per_s = 10e9,
                          .nic_latency_ns = 45000 };
  g_autoptr (PlanSchedule) schedule = parse (SMALL_GATHER);
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &plain, .params = &params };
  params.value[SIM_PARAM_SIMPLE_NET_HOP] = 2;
  g_autoptr (SimCost) simple = cost_of (&input);
  ck_assert_int_eq (sim_cost_ns (simple, 0), 3 * 50000 + 75);
  params.value[SIM_PARAM_LL128_SHARE] = 1;
  params.value[SIM_PARAM_LL128_NET_HOP] = 2;
  g_autoptr (SimCost) lines = cost_of (&input);
  ck_assert_int_eq (sim_cost_ns (lines, 0), 2 * 50000 + 150);
}
END_TEST

/* Who is near a port sets the pace: 8 MB per rank, gathered by four ranks on two nodes, and by one
 * rank of each. `whole` and `single` in ns, by hand: 24 MB and 8 MB over what the ports give. */
static const struct
{
  const char *what;
  gint64 nvlink_domain, nics, sharers, far_devices;
  double far;
  gint64 whole_ns, single_ns;
} affinities[] = {
  { "nobody says: an even share of 10 GB/s each", 2, 2, 0, 0, 0, 1200000, 800000 },
  { "a port each", 2, 2, 1, 0, 0, 1200000, 800000 },
  { "both at one of two ports, and NVLink to reach the other", 2, 2, 2, 0, 0, 1200000, 1600000 },
  { "the same without NVLink", 0, 2, 2, 0, 0, 2400000, 1600000 },
  { "one behind the host, sent on over NVLink", 2, 2, 1, 1, 4e9, 1200000, 800000 },
  { "one behind the host without NVLink", 0, 2, 1, 1, 4e9, 3000000, 2000000 },
  { "all behind the host", 2, 2, 1, 2, 4e9, 3000000, 2000000 },
  { "behind a host that is fast enough", 0, 2, 1, 2, 40e9, 1200000, 800000 },
  { "four ports, two each", 2, 4, 1, 0, 0, 600000, 400000 },
};

#define NEAR_AND_FAR \
  "schedule 2 rank=0 ranks=4\n" \
  "group all size=4 stride=1\n" \
  "group rail size=2 stride=2\n" \
  "buffer in elements=8000000 dtype=u8 category=weights\n" \
  "buffer out elements=32000000 dtype=u8 category=gathered\n" \
  "section setup\n" \
  "all_gather gather group=all out=out in=in count=8000000\n" \
  "all_gather gather group=rail out=out in=in count=8000000\n" \
  "all_to_all gather group=all out=out in=out count=8000000\n" \
  "section step\nsection teardown\n"

static PlanCluster
two_nodes_of_two (void)
{
  return (PlanCluster){ .name = (char *)"test",
                        .nodes = 2,
                        .devices_per_node = 2,
                        .nvlink_domain = 2,
                        .memory_bytes_per_s = 1e12,
                        .link_bytes_per_s = 1000e9,
                        .nics_per_node = 2,
                        .nic_rate_bytes_per_s = 10e9,
                        .nic_bytes_per_s = 10e9 };
}

START_TEST (ports_serve_who_is_near)
{
  SimParams params = ideal ();
  PlanCluster cluster = two_nodes_of_two ();
  cluster.nvlink_domain = affinities[_i].nvlink_domain;
  cluster.nics_per_node = affinities[_i].nics;
  cluster.nic_bytes_per_s = 10e9 * (double)affinities[_i].nics / 2;
  cluster.nic_sharers = affinities[_i].sharers;
  cluster.far_devices = affinities[_i].far_devices;
  cluster.far_bytes_per_s = affinities[_i].far;
  g_autoptr (PlanSchedule) schedule = parse (NEAR_AND_FAR);
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &plain, .params = &params };
  g_autoptr (SimCost) cost = cost_of (&input);
  ck_assert_msg (sim_cost_ns (cost, 0) == affinities[_i].whole_ns
                     && sim_cost_ns (cost, 1) == affinities[_i].single_ns,
                 "%s: %d and %d ns", affinities[_i].what, (int)sim_cost_ns (cost, 0),
                 (int)sim_cost_ns (cost, 1));
}
END_TEST

/* Each rank sends 8 MB to each other one: one over the link, two to the other node, of which that
 * on the other rail goes over the link, too, where there is NVLink. */
START_TEST (rails_are_changed_inside_the_node)
{
  SimParams params = ideal ();
  PlanCluster cluster = two_nodes_of_two ();
  g_autoptr (PlanSchedule) schedule = parse (NEAR_AND_FAR);
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &plain, .params = &params };
  cluster.link_bytes_per_s = 4e9;
  g_autoptr (SimCost) plane = cost_of (&input);
  ck_assert_int_eq (sim_cost_ns (plane, 2), 2000000);
  cluster.rails = 2;
  g_autoptr (SimCost) rails = cost_of (&input);
  ck_assert_int_eq (sim_cost_ns (rails, 2), 4000000);
  cluster.nvlink_domain = 0;
  g_autoptr (SimCost) crossed = cost_of (&input);
  ck_assert_int_eq (sim_cost_ns (crossed, 2), 2000000);
}
END_TEST

#define IN_A_MESH \
  "schedule 2 rank=0 ranks=8\n" \
  "group all size=8 stride=1\n" \
  "group two size=2 stride=4\n" \
  "buffer in elements=8000000 dtype=u8 category=weights\n" \
  "buffer out elements=64000000 dtype=u8 category=gathered\n" \
  "section setup\n" \
  "all_gather gather group=all out=out in=in count=8000000\n" \
  "all_gather gather group=two out=out in=in count=8000000\n" \
  "all_to_all gather group=all out=out in=out count=8000000\n" \
  "exchange tensor group=all out=out in=in count=8000000\n" \
  "section step\nsection teardown\n"

/* Of a device's seven links of 10 GB/s those to members are used, by 8 MB each, in 800 us; who
 * sends to one member has all 70 GB/s through switches. */
START_TEST (a_mesh_has_a_link_to_each)
{
  static const double through_switches[] = { 1, 1. / 7, 1, 1. / 7 };
  SimParams params = ideal ();
  PlanCluster cluster = { .name = (char *)"test",
                          .nodes = 1,
                          .devices_per_node = 8,
                          .memory_bytes_per_s = 1e12,
                          .link_bytes_per_s = 70e9 };
  g_autoptr (PlanSchedule) schedule = parse (IN_A_MESH);
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &plain, .params = &params };
  g_autoptr (SimCost) switched = cost_of (&input);
  cluster.mesh_links = 7;
  g_autoptr (SimCost) meshed = cost_of (&input);
  for (guint op = 0; op < G_N_ELEMENTS (through_switches); op++)
    {
      ck_assert_int_eq (sim_cost_ns (meshed, op), 800000);
      ck_assert_int_eq (sim_cost_ns (switched, op), (gint64)(8e5 * through_switches[op] + 0.5));
    }
}
END_TEST

/* Which algorithms may be used: the number of busy processors tells which was chosen. */
static const struct
{
  const char *cluster, *fields, *op;
  gint64 size, stride;
  guint sms;
  gboolean is_asked; /* whether to take no processors */
} eligible[] = {
  { "dgx-h100:1", "", "all_gather", 8, 1, 24, FALSE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.26", "all_gather", 8, 1, 24, FALSE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.27", "all_gather", 8, 1, 2, FALSE }, /* NCCL's own number */
  { "dgx-h100:1", "nccl_ub=on nccl=2.27", "all_gather", 4, 1, 4, FALSE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.27", "all_gather", 2, 1, 8, FALSE },
  { "dgx-a100:1", "nccl_ub=on nccl=2.27", "all_gather", 8, 1, 9, FALSE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.29", "all_gather", 8, 1, 2, FALSE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.27", "all_gather", 8, 1, 2, TRUE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.28", "all_gather", 8, 1, 0, TRUE }, /* by copy engines */
  { "dgx-b200:1", "nccl_ub=on nccl=2.28", "all_gather", 8, 1, 3, FALSE },
  { "dgx-b200:1", "nccl_ub=on nccl=2.29", "all_gather", 8, 1, 0, FALSE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.28", "reduce_scatter", 8, 1, 2, FALSE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.26", "reduce_scatter", 8, 1, 24, FALSE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.28 per_token_loss=off grad_comm=fp32", "reduce_scatter", 8, 1,
    24, FALSE }, /* a factor and a sum */
  { "dgx-h100:1", "nccl_ub=on nccl=2.28 per_token_loss=off", "reduce_scatter", 8, 1, 2, FALSE },
  { "dgx-h100:1", "nccl_ub=on nccl=2.29", "all_reduce", 8, 1, 16, FALSE }, /* by the switches */
  { "dgx-a100:1", "", "all_reduce", 8, 1, 24, FALSE },                     /* whose do not reduce */
  { "dgx-h100:2", "nccl_ub=on nccl=2.28", "all_gather", 16, 1, 16, FALSE },
  { "dgx-h100:2", "nccl_ub=on nccl=2.28 sharp=ib", "all_gather", 16, 1, 6, FALSE },
  { "dgx-h100:2", "nccl_ub=on", "all_gather", 2, 8, 1, FALSE },
  { "dgx-h100:2", "", "reduce_scatter", 2, 8, 4, FALSE },
  { "a100-pcie-8x", "nccl_ub=on nccl=2.28", "all_gather", 8, 1, 24, FALSE }, /* no NVLink */
};

static SimCost *
collective (const char *cluster_spec, const char *words, const char *op, gint64 size, gint64 stride,
            gint64 share, const PlanStack *stack)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = plan_cluster_new (cluster_spec, &error);
  ck_assert_msg (cluster != NULL, "%s", error ? error->message : "");
  g_auto (GStrv) fields = g_strsplit (words, " ", -1);
  Plan plan;
  plan_init (&plan);
  for (char **f = fields; *f; f++)
    {
      g_auto (GStrv) halves = g_strsplit (*f, "=", 2);
      ck_assert_msg (!*halves || plan_set (&plan, halves[0], halves[1], &error), "%s", *f);
    }
  const gint64 in = g_str_equal (op, "all_gather") ? share : share * size;
  const gint64 out = g_str_equal (op, "reduce_scatter") ? share : share * size;
  const gboolean is_all_reduce = g_str_equal (op, "all_reduce");
  const char *const dtype = strstr (words, "grad_comm=fp32") ? "fp32" : "bf16";
  g_autofree char *text
      = g_strdup_printf ("schedule 2 rank=0 ranks=%" G_GINT64_FORMAT "\n"
                         "group g size=%" G_GINT64_FORMAT " stride=%" G_GINT64_FORMAT "\n"
                         "buffer in elements=%" G_GINT64_FORMAT " dtype=%s category=weights\n"
                         "buffer out elements=%" G_GINT64_FORMAT " dtype=%s category=gathered\n"
                         "section setup\n%s gather group=g %s count=%" G_GINT64_FORMAT "\n"
                         "section step\nsection teardown\n",
                         size * stride, size, stride, in, dtype, out, dtype, op,
                         is_all_reduce ? "buf=in" : "out=out in=in", is_all_reduce ? in : share);
  g_autoptr (PlanSchedule) schedule = parse (text);
  const SimCostInput input
      = { .schedule = schedule, .cluster = cluster, .stack = stack, .plan = &plan };
  return cost_of (&input);
}

START_TEST (algorithms_need_what_they_need)
{
  g_autoptr (SimCost) cost = collective (eligible[_i].cluster, eligible[_i].fields, eligible[_i].op,
                                         eligible[_i].size, eligible[_i].stride, 32 * 1024 * 1024,
                                         eligible[_i].is_asked ? &frugal : &plain);
  ck_assert_msg (sim_cost_sms (cost, 0) == eligible[_i].sms, "%s on %s, %s: %u", eligible[_i].op,
                 eligible[_i].cluster, eligible[_i].fields, sim_cost_sms (cost, 0));
}
END_TEST

/* A pipeline's first and last stages, of four in a node of eight, are six ranks apart: a stride
 * that divides nothing, but nothing of it is outside. */
START_TEST (all_of_a_node_are_linked)
{
  const gint64 share = 32 * 1024 * 1024;
  g_autoptr (SimCost) near = collective ("dgx-h100:1", "", "all_reduce", 2, 1, share, &plain);
  g_autoptr (SimCost) far = collective ("dgx-h100:1", "", "all_reduce", 2, 6, share, &plain);
  g_autoptr (SimCost) outside = collective ("dgx-h100:2", "", "all_reduce", 2, 12, share, &plain);
  ck_assert_int_eq (sim_cost_ns (far, 0), sim_cost_ns (near, 0));
  ck_assert_int_gt (sim_cost_ns (outside, 0), 2 * sim_cost_ns (near, 0));
}
END_TEST

/* More bytes are never faster, and registering never costs. */
START_TEST (collectives_grow_with_size)
{
  const char *const ops[] = { "all_gather", "reduce_scatter", "all_reduce" };
  const char *const clusters[] = { "dgx-h100:1", "dgx-h100:2", "dgx-b200:4" };
  for (guint o = 0; o < G_N_ELEMENTS (ops); o++)
    for (guint c = 0; c < G_N_ELEMENTS (clusters); c++)
      {
        const gint64 ranks = 8 << c;
        gint64 before = 0;
        for (gint64 share = 16; share < 1 << 28; share *= 4)
          {
            g_autoptr (SimCost) plain_buffers
                = collective (clusters[c], "", ops[o], c == 1 ? 16 : ranks, 1, share, &frugal);
            g_autoptr (SimCost) registered = collective (clusters[c], "nccl_ub=on", ops[o],
                                                         c == 1 ? 16 : ranks, 1, share, &frugal);
            ck_assert_int_ge (sim_cost_ns (plain_buffers, 0), before);
            ck_assert_int_le (sim_cost_ns (registered, 0), sim_cost_ns (plain_buffers, 0));
            ck_assert_uint_le (sim_cost_memory_bytes (registered, 0),
                               sim_cost_memory_bytes (plain_buffers, 0));
            before = sim_cost_ns (plain_buffers, 0);
          }
      }
}
END_TEST

/* A plan on GPUs, lowered. */
static void
case_init (TestCase *c, const char *words)
{
  g_autofree char *all = g_strconcat ("gbs=16 seq=2048 ", words, NULL);
  test_case_init (c, "llama3-8b", "dgx-h100:1", all);
}

/* One shape is measured: its ops take that time, and say so; no other op changes. */
START_TEST (a_measurement_changes_its_shape_alone)
{
  TestCase c;
  case_init (&c, "recompute=none");
  const SimProduct down = { .m = 2048,
                            .n = 4096,
                            .k = 14336,
                            .layout = 1,
                            .in = PLAN_DTYPE_BF16,
                            .out = PLAN_DTYPE_BF16,
                            .flops_per_s = 123e12 };
  g_autoptr (SimMeasurements) measurements = sim_measurements_new (&down, 1);
  SimCostInput input = sim_cost_input (c.of, c.schedule);
  g_autoptr (SimCost) before = cost_of (&input);
  input.measurements = measurements;
  g_autoptr (SimCost) after = cost_of (&input);
  guint changed = 0;
  for (guint node = 0; node < plan_schedule_n_nodes (c.schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (c.schedule, node);
      const gboolean is_it = op->kind == PLAN_OP_GEMM && op->dims[0] == down.m
                             && op->dims[1] == down.n && op->dims[2] == down.k
                             && op->dims[3] == down.layout;
      ck_assert_int_eq (sim_cost_provenance (before, node) == SIM_PROVENANCE_MEASURED, 0);
      ck_assert_int_eq (sim_cost_provenance (after, node) == SIM_PROVENANCE_MEASURED, is_it);
      ck_assert_int_eq (sim_cost_ns (after, node) != sim_cost_ns (before, node), is_it);
      if (is_it)
        ck_assert_int_eq (sim_cost_ns (after, node),
                          (gint64)(2e9 * 2048 * 4096 * 14336 / 123e12 + 0.5));
      changed += is_it;
    }
  ck_assert_uint_gt (changed, 0);
  test_case_clear (&c);
}
END_TEST

/* Corners of a box, all but one at 100 TFLOP/s. */
START_TEST (shapes_among_measured_ones_are_interpolated)
{
  SimProduct rows[8];
  for (guint i = 0; i < 8; i++)
    rows[i] = (SimProduct){ .m = i & 1 ? 4096 : 2048,
                            .n = i & 2 ? 4096 : 2048,
                            .k = i & 4 ? 4096 : 2048,
                            .layout = 1,
                            .in = PLAN_DTYPE_BF16,
                            .out = PLAN_DTYPE_BF16,
                            .flops_per_s = i == 7 ? 200e12 : 100e12 };
  g_autoptr (SimMeasurements) measurements = sim_measurements_new (rows, 8);
  SimProduct shape = rows[0];
  double rate;
  shape.m = shape.n = shape.k = 2049;
  ck_assert (!sim_measurements_find (measurements, &shape, &rate));
  ck_assert (sim_measurements_interpolate (measurements, &shape, &rate));
  ck_assert_msg (ABS (rate / 100e12 - 1) < 1e-3, "%g", rate);
  shape.m = shape.n = shape.k = 4000;
  ck_assert (sim_measurements_interpolate (measurements, &shape, &rate));
  ck_assert (rate > 190e12 && rate < 200e12);
  const SimProduct outside[] = { { .m = 2047, .n = 4000, .k = 4000 },
                                 { .m = 4000, .n = 4097, .k = 4000 },
                                 { .m = 4000, .n = 4000, .k = 65536 } };
  for (guint i = 0; i < G_N_ELEMENTS (outside); i++)
    {
      shape.m = outside[i].m;
      shape.n = outside[i].n;
      shape.k = outside[i].k;
      ck_assert (!sim_measurements_interpolate (measurements, &shape, &rate));
    }
  shape = rows[3];
  shape.layout = 2; /* a layout that was not timed */
  ck_assert (!sim_measurements_interpolate (measurements, &shape, &rate));
  ck_assert (sim_measurements_find (measurements, &rows[7], &rate) && rate == 200e12);
}
END_TEST

/* Repeats of one shape: the mean of their times. */
START_TEST (repeated_measurements_are_averaged)
{
  SimProduct rows[2] = { { .m = 64, .n = 64, .k = 64, .flops_per_s = 1e12 },
                         { .m = 64, .n = 64, .k = 64, .flops_per_s = 3e12 } };
  g_autoptr (SimMeasurements) measurements = sim_measurements_new (rows, 2);
  double rate;
  ck_assert (sim_measurements_find (measurements, &rows[1], &rate));
  ck_assert (ABS (rate / 1.5e12 - 1) < 1e-12);
  g_autoptr (SimMeasurements) none = sim_measurements_new (NULL, 0);
  ck_assert (!sim_measurements_find (none, &rows[0], &rate));
  ck_assert (!sim_measurements_interpolate (none, &rows[0], &rate));
  ck_assert_uint_eq (sim_measurements_n (none), 0);
}
END_TEST

/* What issuing costs the host depends on the op, and structure costs nothing. Which products read
 * gradients shows in how their factors lie, where these are not quantised; what is computed again
 * in the backward pass is called as it was in the forward pass. */
START_TEST (issuing_costs_by_kind)
{
  TestCase c;
  case_init (&c, _i ? "recompute=full" : "recompute=none");
  const PlanStack *stack = c.of->stack;
  const SimCostInput input = sim_cost_input (c.of, c.schedule);
  g_autoptr (SimCost) cost = cost_of (&input);
  ck_assert_int_ne (stack->host.launch_ns[PLAN_LAUNCH_PRODUCT],
                    stack->host.launch_ns[PLAN_LAUNCH_GRADIENT]);
  for (guint node = 0; node < plan_schedule_n_nodes (c.schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (c.schedule, node);
      gint64 expected = 0;
      if (op->kind == PLAN_OP_GEMM)
        expected
            = stack->host.launch_ns[op->dims[3] == 1 ? PLAN_LAUNCH_PRODUCT : PLAN_LAUNCH_GRADIENT];
      else if (op->kind == PLAN_OP_ALL_GATHER || op->kind == PLAN_OP_REDUCE_SCATTER)
        expected = stack->host.launch_ns[PLAN_LAUNCH_COLLECTIVE];
      else if (op->kind == PLAN_OP_CAST || op->kind == PLAN_OP_RMSNORM)
        expected = stack->host.launch_ns[PLAN_LAUNCH_KERNEL];
      else if (op->kind == PLAN_OP_PREPARE) /* six of each layer, embedding, norm and head */
        expected = (32 * 6 + 3) * stack->optimizer.tensor_ns;
      else if (op->kind < PLAN_N_OPS && op->kind != PLAN_OP_ALLOC && op->kind != PLAN_OP_WAIT)
        continue;
      ck_assert_int_eq (sim_cost_launch_ns (cost, node), expected);
    }
  test_case_clear (&c);
}
END_TEST

/* By user buffers copy engines send 16 MB to the next of four; a sum reads three times as much, on
 * 16 processors. To begin a product in pieces costs the host once, to go on as much as kernels do.
 */
START_TEST (user_buffers_take_copies_and_kernels)
{
  g_autoptr (PlanSchedule) schedule
      = parse ("schedule 2 rank=0 ranks=4\n"
               "group tensor size=4 stride=1\n"
               "buffer x elements=32000000 dtype=bf16 category=activations\n"
               "buffer w elements=64 dtype=bf16 category=gathered\n"
               "buffer out elements=32000000 dtype=bf16 category=activations pieces=4\n"
               "section setup\n"
               "exchange tensor group=tensor out=out in=x count=8000000\n"
               "reduce_scatter tensor group=tensor out=x in=out count=8000000\n"
               "gemm compute out=out a=x b=w m=1000000 n=8 k=8 layout=1\n"
               "gemm compute out=out+8000000 a=x b=w m=1000000 n=8 k=8 layout=1\n"
               "section step\nsection teardown\n");
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  const PlanStack stack = {
    .host.launch_ns
    = { [PLAN_LAUNCH_KERNEL] = 10, [PLAN_LAUNCH_PRODUCT] = 1000, [PLAN_LAUNCH_COLLECTIVE] = 5000 }
  };
  SimParams params = *sim_params_default (cluster);
  Plan plan;
  plan_init (&plan);
  plan.value[PLAN_TP_OVERLAP] = PLAN_TP_OVERLAP_UB;
  params.value[SIM_PARAM_SYMMETRIC_NS] = 5000;
  params.value[SIM_PARAM_ENGINE_SHARE] = 0.8;
  params.value[SIM_PARAM_SYMMETRIC_SHARE] = 0.5;
  const SimCostInput input = {
    .schedule = schedule, .cluster = cluster, .stack = &stack, .plan = &plan, .params = &params
  };
  g_autoptr (SimCost) cost = cost_of (&input);
  ck_assert_int_eq (sim_cost_ns (cost, 0), 5000 + 16000000 / (450 * 0.8) + 0.5);
  ck_assert_int_eq (sim_cost_ns (cost, 1), 5000 + 48000000 / (450 * 0.5) + 0.5);
  ck_assert (sim_cost_sms (cost, 0) == 0 && sim_cost_sms (cost, 1) == 16);
  ck_assert_uint_eq (sim_cost_memory_bytes (cost, 0), 2 * 16000000);
  static const gint64 launch_ns[] = { 10, 10, 1000, 10 };
  for (guint node = 0; node < G_N_ELEMENTS (launch_ns); node++)
    ck_assert_int_eq (sim_cost_launch_ns (cost, node), launch_ns[node]);
}
END_TEST

/* Rows that are looked up, or added to others, move as often as they are named, whatever the size
 * of the table; sorting writes and reads what it works in; of pieces each costs the host, and of
 * more than 128 a second kernel. */
START_TEST (rows_move_as_often_as_they_are_named)
{
  g_autoptr (PlanSchedule) schedule
      = parse ("schedule 2 rank=0 ranks=1\n"
               "buffer table elements=4000000 dtype=bf16 category=activations\n"
               "buffer rows elements=32000000 dtype=bf16 category=activations\n"
               "buffer at elements=8000000 dtype=i64 category=activations\n"
               "buffer order elements=8000000 dtype=i64 category=activations\n"
               "buffer keys elements=8000000 dtype=u8 category=activations\n"
               "buffer sorted elements=8000000 dtype=u8 category=activations\n"
               "section setup\n"
               "index_rows compute out=rows in=table index=at rows=8000000 cols=4 of=1000000\n"
               "add_rows compute out=table in=rows index=at rows=8000000 cols=4 of=1000000\n"
               "sort compute order=order keys=keys sorted=sorted work=at count=8000000\n"
               "sort compute order=order keys=keys sorted=sorted count=8000000\n"
               "join_rows compute out=rows in=rows count=32000000 pieces=128 held=32000000\n"
               "join_rows compute out=rows in=rows count=32000000 pieces=129 held=16000000\n"
               "section step\nsection teardown\n");
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  const PlanStack stack = { .host.launch_ns = { [PLAN_LAUNCH_KERNEL] = 10 } };
  const SimParams params = ideal ();
  const SimCostInput input
      = { .schedule = schedule, .cluster = cluster, .stack = &stack, .params = &params };
  g_autoptr (SimCost) cost = cost_of (&input);
  static const struct
  {
    double megabytes;
    gint64 launch_ns;
  } said[] = { { 64 + 64 + 64, 10 },
               { 2 * 64 + 64 + 64, 10 },
               { 64 + 2 * 64 + 2 * 8, 10 + 3 * 4000 },
               { 64 + 2 * 8, 10 + 3 * 4000 },
               { 2 * 64, 10 + 128 * 2000 },
               { 2 * 64, 10 + 4000 + 129 * 2000 } };
  for (guint node = 0; node < G_N_ELEMENTS (said); node++)
    {
      const double ns = said[node].megabytes * 1e15 / cluster->memory_bytes_per_s;
      ck_assert_int_eq (sim_cost_ns (cost, node), (gint64)(ns + 0.5));
      ck_assert_int_eq (sim_cost_launch_ns (cost, node), said[node].launch_ns);
    }
}
END_TEST

/* 3 MiB are there for a part of the step only: as many as are given back, and taken again. */
START_TEST (emptying_the_cache_costs_the_host)
{
  g_autoptr (PlanSchedule) schedule
      = parse ("schedule 2 rank=0 ranks=1\n"
               "buffer stays elements=1048576 dtype=fp32 category=weights\n"
               "buffer goes elements=524288 dtype=fp32 category=activations\n"
               "buffer too elements=262144 dtype=fp32 category=activations\n"
               "section setup\nalloc compute buf=stays\nsection step\nalloc compute buf=goes\n"
               "alloc compute buf=too\nfree compute buf=goes\nfree compute buf=too\n"
               "prepare host tensors=7\nsection teardown\nfree compute buf=stays\n");
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  const PlanStack stack = { .memory.allocation_bytes = 512, .optimizer.tensor_ns = 100 };
  SimParams params = *sim_params_default (cluster);
  params.value[SIM_PARAM_LAUNCH] = 2;
  params.value[SIM_PARAM_RETAKE] = 1000;
  for (guint i = 0; i < 2; i++)
    {
      Plan plan;
      plan_init (&plan);
      plan.value[PLAN_EMPTY_CACHE] = i ? PLAN_EMPTY_CACHE_ON : PLAN_EMPTY_CACHE_OFF;
      const SimCostInput input = {
        .schedule = schedule, .cluster = cluster, .stack = &stack, .plan = &plan, .params = &params
      };
      g_autoptr (SimCost) cost = cost_of (&input);
      for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
        if (plan_schedule_node (schedule, node)->kind == PLAN_OP_PREPARE)
          ck_assert_int_eq (sim_cost_launch_ns (cost, node), 2 * 7 * 100 + (i ? 3 * 1000 : 0));
    }
}
END_TEST

/* Quantised factors all lie alike; of three products of a weight two are of gradients. */
START_TEST (quantised_gradients_are_told_apart)
{
  TestCase c;
  case_init (&c, "compute=fp8-tensorwise param_gather=fp8");
  const PlanStack *stack = c.of->stack;
  const SimCostInput input = sim_cost_input (c.of, c.schedule);
  g_autoptr (SimCost) cost = cost_of (&input);
  gint64 n[PLAN_N_LAUNCHES] = { 0 };
  PlanTimes times = { .depth = 0 };
  for (guint node = 0; node < plan_schedule_n_nodes (c.schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (c.schedule, node);
      const gint64 runs = plan_times_next (&times, op);
      for (guint l = 0; l < PLAN_N_LAUNCHES; l++)
        if (op->kind == PLAN_OP_GEMM && sim_cost_launch_ns (cost, node) == stack->host.launch_ns[l])
          n[l] += runs;
    }
  const gint64 micro_batches = 2, linear = 32 * 4;
  ck_assert_int_eq (n[PLAN_LAUNCH_QUANTISED_PRODUCT], micro_batches * linear);
  ck_assert_int_eq (n[PLAN_LAUNCH_QUANTISED_GRADIENT], micro_batches * linear * 2);
  ck_assert_int_eq (n[PLAN_LAUNCH_PRODUCT], micro_batches);
  ck_assert_int_eq (n[PLAN_LAUNCH_GRADIENT], micro_batches * 2);
  test_case_clear (&c);
}
END_TEST

START_TEST (every_parameter_has_a_source)
{
  const SimParams *params;
  for (guint i = 0; (params = sim_params_get (i)); i++)
    for (SimParam p = 0; p < SIM_N_PARAMS; p++)
      {
        const char *source = sim_params_source (params, p);
        ck_assert_msg (source && *source, "%s: %s", params->id, sim_param_key (p));
        ck_assert (params->value[p] >= 0 && *sim_param_meaning (p));
        for (SimParam q = 0; q < p; q++)
          ck_assert_str_ne (sim_param_key (p), sim_param_key (q));
      }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cost");
  TCase *tcase = tcase_create ("cost");
  tcase_add_test (tcase, products_go_in_waves);
  tcase_add_test (tcase, products_of_experts_are_side_by_side_or_not);
  tcase_add_test (tcase, short_and_odd_products_pay);
  tcase_add_loop_test (tcase, attention_follows_its_curve, 0, G_N_ELEMENTS (attention));
  tcase_add_test (tcase, rings_take_the_pace_of_the_slowest_link);
  tcase_add_test (tcase, far_networks_hold_rings_up);
  tcase_add_loop_test (tcase, ports_serve_who_is_near, 0, G_N_ELEMENTS (affinities));
  tcase_add_test (tcase, rails_are_changed_inside_the_node);
  tcase_add_test (tcase, a_mesh_has_a_link_to_each);
  tcase_add_loop_test (tcase, algorithms_need_what_they_need, 0, G_N_ELEMENTS (eligible));
  tcase_add_test (tcase, all_of_a_node_are_linked);
  tcase_add_test (tcase, collectives_grow_with_size);
  tcase_add_test (tcase, a_measurement_changes_its_shape_alone);
  tcase_add_test (tcase, shapes_among_measured_ones_are_interpolated);
  tcase_add_test (tcase, repeated_measurements_are_averaged);
  tcase_add_loop_test (tcase, issuing_costs_by_kind, 0, 2);
  tcase_add_test (tcase, emptying_the_cache_costs_the_host);
  tcase_add_test (tcase, user_buffers_take_copies_and_kernels);
  tcase_add_test (tcase, rows_move_as_often_as_they_are_named);
  tcase_add_test (tcase, quantised_gradients_are_told_apart);
  tcase_add_test (tcase, every_parameter_has_a_source);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
