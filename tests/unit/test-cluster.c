/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/cluster/cluster.h"

#include <check.h>
#include <glib/gstdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Printing and parsing changes nothing, sources included. */
static void
check_prints_back (const PlanCluster *cluster)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = plan_cluster_print (cluster);
  g_autoptr (PlanCluster) again = plan_cluster_parse (text, "again", &error);
  ck_assert_msg (again != NULL, "%s", error ? error->message : "");
  g_autofree char *text_again = plan_cluster_print (again);
  ck_assert_str_eq (text, text_again);
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    {
      ck_assert (plan_cluster_value (cluster, f) == plan_cluster_value (again, f));
      ck_assert (plan_cluster_knows (cluster, f) == plan_cluster_knows (again, f));
      if (plan_cluster_knows (cluster, f))
        ck_assert_str_eq (plan_cluster_source_of (cluster, f), plan_cluster_source_of (again, f));
    }
}

START_TEST (every_preset_is_sound)
{
  for (const char *const *name = plan_cluster_presets (); *name; name++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanCluster) cluster = plan_cluster_new (*name, &error);
      ck_assert_msg (cluster != NULL, "%s", error ? error->message : "");
      ck_assert_str_eq (cluster->name, *name);
      ck_assert (plan_cluster_check_figures (cluster, PLAN_DTYPE_FP16, NULL));
      for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
        ck_assert_str_ne (plan_cluster_source_of (cluster, f), "not stated");
      ck_assert (cluster->sharp != PLAN_ANSWER_YES || cluster->nics_per_node > 0);
      ck_assert (cluster->nvls != PLAN_ANSWER_YES || cluster->nvswitch == PLAN_ANSWER_YES);
      ck_assert (cluster->nvls != PLAN_ANSWER_YES || cluster->compute_capability >= 90);
      check_prints_back (cluster);
    }
}
END_TEST

/* Where both facts are known the first is at most the second. */
static void
check_order (const PlanCluster *gpu, PlanFact less, PlanFact more)
{
  if (plan_cluster_knows (gpu, less) && plan_cluster_knows (gpu, more))
    ck_assert_msg (plan_cluster_value (gpu, less) <= plan_cluster_value (gpu, more),
                   "%s: %s is more than %s", gpu->name, plan_fact_key (less), plan_fact_key (more));
}

START_TEST (every_device_is_plausible)
{
  for (const char *const *name = plan_cluster_devices_shipped (); *name; name++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanCluster) gpu = plan_cluster_new_device (*name, &error);
      ck_assert_msg (gpu != NULL, "%s", error ? error->message : "");
      check_order (gpu, PLAN_FACT_PEAK_FP32, PLAN_FACT_PEAK_TF32);
      check_order (gpu, PLAN_FACT_PEAK_TF32, PLAN_FACT_PEAK_BF16);
      check_order (gpu, PLAN_FACT_PEAK_BF16, PLAN_FACT_PEAK_FP16);
      check_order (gpu, PLAN_FACT_PEAK_BF16, PLAN_FACT_PEAK_E4M3);
      check_order (gpu, PLAN_FACT_PEAK_E4M3, PLAN_FACT_PEAK_MXFP8);
      check_order (gpu, PLAN_FACT_PEAK_MXFP8, PLAN_FACT_PEAK_NVFP4);
      check_order (gpu, PLAN_FACT_MEMORY, PLAN_FACT_MEMORY_NOMINAL);
      check_order (gpu, PLAN_FACT_HOST_BANDWIDTH, PLAN_FACT_MEMORY_BANDWIDTH);
      /* A compute capability implies formats: bf16 from 8.0, fp8 from 8.9, block scales from
       * 10.0. */
      const gint64 capability = gpu->compute_capability;
      ck_assert_int_ge (capability, 70);
      ck_assert ((capability >= 80) == (gpu->peak_flops[PLAN_DTYPE_BF16] > 0));
      ck_assert ((capability >= 89) == (gpu->peak_flops[PLAN_DTYPE_E4M3] > 0));
      ck_assert ((capability >= 100) == (gpu->peak_flops[PLAN_DTYPE_MXFP8] > 0));
      ck_assert (gpu->peak_flops[PLAN_DTYPE_E4M3] == gpu->peak_flops[PLAN_DTYPE_E5M2]);
      ck_assert (gpu->memory_bytes > 0.9 * (double)gpu->memory_nominal_bytes * 0.96);
      /* A tensor core does a power of two of operations per cycle; data sheets multiply that. */
      if (gpu->sm_count && gpu->boost_clock_hz > 0)
        {
          const double per_cycle = log2 (gpu->peak_flops[PLAN_DTYPE_FP16]
                                         / ((double)gpu->sm_count * gpu->boost_clock_hz));
          ck_assert_msg (fabs (per_cycle - round (per_cycle)) < 0.03, "%s: 2^%g per cycle", *name,
                         per_cycle);
        }
    }
}
END_TEST

/* The names of these devices in measurements, and how many a node has. */
static const struct
{
  const char *name;
  int per_node;
} measured[] = {
  { "v100-16gb", 8 },
  { "v100-32gb", 8 },
  { "a100-40gb", 8 },
  { "a100-80gb", 8 },
  { "a100-pcie-80gb", 8 },
  { "a800-80gb", 8 },
  { "h100-80gb", 8 },
  { "h100-96gb-hbm2e", 8 },
  { "h100-pcie", 8 },
  { "h800-80gb", 8 },
  { "h200-141gb", 8 },
  { "gh200-96gb", 1 },
  { "b200", 8 },
  { "gb200", 4 },
  { "b300", 8 },
  { "gb300", 4 },
  { "l40s", 8 },
  { "rtx4090", 8 },
  { "rtxpro6000", 8 },
  { "rtx3090", 8 },
  { "a40", 8 },
  { "a10", 8 },
  { "l4", 8 },
  { "rtx5090", 8 },
  { "rtx6000ada", 8 },
  { "mi300x", 8 },
  { "mi325x", 8 },
};

START_TEST (every_measured_device_has_a_node)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *spec = g_strdup_printf ("%s:%d", measured[_i].name, measured[_i].per_node);
  g_autofree char *more = g_strdup_printf ("%s:%d", measured[_i].name, 2 * measured[_i].per_node);
  g_autofree char *odd = g_strdup_printf ("%s:%d", measured[_i].name, measured[_i].per_node + 1);
  g_autoptr (PlanCluster) node = plan_cluster_new (spec, &error);
  ck_assert_msg (node != NULL, "%s", error ? error->message : "");
  ck_assert_str_eq (node->device_name, measured[_i].name);
  ck_assert_int_eq (plan_cluster_devices (node), measured[_i].per_node);
  g_autoptr (PlanCluster) two = plan_cluster_new (more, NULL);
  ck_assert_int_eq (two->nodes, 2);
  ck_assert_int_eq (two->devices_per_node, measured[_i].per_node);
  if (measured[_i].per_node == 1)
    return;
  g_autoptr (PlanCluster) none = plan_cluster_new (odd, &error);
  ck_assert_ptr_null (none);
  ck_assert_msg (strstr (error->message, ":2 for 2 nodes"), "%s", error->message);
}
END_TEST

START_TEST (nvlink_reaches_over_nodes)
{
  g_autoptr (PlanCluster) rack = plan_cluster_new ("gb200-nvl72", NULL);
  g_autoptr (PlanCluster) two_trays = plan_cluster_new ("gb200-nvl72:2", NULL);
  g_autoptr (PlanCluster) two_racks = plan_cluster_new ("gb200-nvl72:36", NULL);
  g_autoptr (PlanCluster) dgx = plan_cluster_new ("dgx-h100:2", NULL);
  g_autoptr (PlanCluster) half = plan_cluster_new ("h100-80gb:4", NULL);
  ck_assert (rack && two_trays && two_racks && dgx && half);
  ck_assert_int_eq (plan_cluster_devices (rack), 72);
  ck_assert_int_eq (plan_cluster_linked_devices (rack), 72);
  ck_assert_int_eq (plan_cluster_linked_devices (two_trays), 8);
  ck_assert_int_eq (plan_cluster_linked_devices (two_racks), 72);
  ck_assert_int_eq (plan_cluster_linked_devices (dgx), 8);
  ck_assert_int_eq (plan_cluster_linked_devices (half), 4);
}
END_TEST

/* A cluster as version 1 of the store kept it, byte for byte. */
START_TEST (reads_what_version_1_wrote)
{
  static const char text[]
      = "[dgx-b200]\nsource=data sheet\nnodes=4\ndevices_per_node=8\ndevice=b200\nkind=gpu\n"
        "peak_fp32=80 TFLOP/s\npeak_bf16=2250 TFLOP/s\npeak_fp16=2250 TFLOP/s\n"
        "peak_e4m3=4500 TFLOP/s\npeak_e5m2=4500 TFLOP/s\npeak_e8m0=4400 TFLOP/s\n"
        "peak_e2m1=9100 TFLOP/s\nmemory=178.4 GiB\nmemory_bandwidth=7.7 TB/s\n"
        "link_bandwidth=900 GB/s\nlink_latency=2 us\nnic_bandwidth=50 GB/s\nnic_latency=5 us\n";
  g_autoptr (PlanCluster) c = plan_cluster_parse (text, "stored", NULL);
  ck_assert_ptr_nonnull (c);
  ck_assert (c->peak_flops[PLAN_DTYPE_MXFP8] == 4400e12);
  ck_assert (c->peak_flops[PLAN_DTYPE_NVFP4] == 9100e12);
  ck_assert (c->memory_bytes_per_s == 7.7e12 && c->nic_bytes_per_s == 50e9);
  ck_assert_str_eq (plan_cluster_source_of (c, PLAN_FACT_MEMORY_BANDWIDTH), "data sheet");
  /* Facts that version 1 did not have come from the shipped device. */
  ck_assert_int_eq (c->compute_capability, 100);
  ck_assert_int_eq (c->sm_count, 148);
  ck_assert_int_eq (c->nvlink_domain, 8); /* as its link is faster than PCI Express */
  check_prints_back (c);
}
END_TEST

/* The text says more memory than the shipped device has: the text wins. */
START_TEST (own_figures_win)
{
  g_autoptr (PlanCluster) c = plan_cluster_parse (
      "[box]\ndevices_per_node=1\ndevice=rtx4090\nmemory=48 GB\npeak_bf16=1 TFLOP/s\n", "c.ini",
      NULL);
  ck_assert_ptr_nonnull (c);
  ck_assert_uint_eq (c->memory_bytes, G_GUINT64_CONSTANT (48000000000));
  ck_assert_uint_eq (c->memory_nominal_bytes, 0);
  ck_assert (c->peak_flops[PLAN_DTYPE_BF16] == 1e12);
  ck_assert (c->peak_flops[PLAN_DTYPE_FP16] == 165.2e12);
  check_prints_back (c);
}
END_TEST

START_TEST (facts_have_their_own_sources)
{
  g_autoptr (PlanCluster) c = plan_cluster_parse (
      "[box]\nsource=mine\ndevices_per_node=2\ndevice=chip\nnvlink_domain=2\nnics_per_node=1\n"
      "nic_rate = 400 Gbit/s # label\nlink_latency=1 us#  assumed: a guess \nsharp=no\n"
      "[gpu chip]\nsource=maker # 2\nnvlink_bandwidth=10 GB/s\npeak_bf16=1 TFLOP/s # measured\n"
      "compute_capability=10.3\n",
      "c.ini", NULL);
  ck_assert_ptr_nonnull (c);
  ck_assert_str_eq (plan_cluster_source_of (c, PLAN_FACT_NIC_RATE), "label");
  ck_assert_str_eq (plan_cluster_source_of (c, PLAN_FACT_SHARP), "mine");
  ck_assert_str_eq (plan_cluster_source_of (c, PLAN_FACT_PEAK_BF16), "measured");
  ck_assert_str_eq (plan_cluster_source_of (c, PLAN_FACT_COMPUTE_CAPABILITY), "maker # 2");
  ck_assert (plan_cluster_assumes (c, PLAN_FACT_LINK_LATENCY));
  ck_assert (!plan_cluster_assumes (c, PLAN_FACT_NIC_RATE));
  ck_assert_int_eq (c->compute_capability, 103);
  ck_assert_int_eq (c->sharp, PLAN_ANSWER_NO);
  /* Derived from facts that are there, with their source. */
  ck_assert (c->link_bytes_per_s == 10e9 && c->nic_bytes_per_s == 25e9);
  ck_assert_str_eq (plan_cluster_source_of (c, PLAN_FACT_LINK_BANDWIDTH), "maker # 2");
  ck_assert_str_eq (plan_cluster_source_of (c, PLAN_FACT_NIC_BANDWIDTH), "label");
  check_prints_back (c);
}
END_TEST

START_TEST (figures_of_dgx_h100)
{
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:4", NULL);
  ck_assert_ptr_nonnull (cluster);
  ck_assert_int_eq (cluster->nodes, 4);
  ck_assert_int_eq (plan_cluster_devices (cluster), 32);
  ck_assert_str_eq (cluster->device_name, "h100-80gb");
  ck_assert_int_eq (cluster->kind, PLAN_DEVICE_GPU);
  ck_assert (cluster->peak_flops[PLAN_DTYPE_BF16] == 989.5e12);
  ck_assert (cluster->peak_flops[PLAN_DTYPE_E4M3] == 1979e12);
  ck_assert (cluster->peak_flops[PLAN_DTYPE_FP32] == 67e12);
  ck_assert (cluster->peak_flops[PLAN_DTYPE_MXFP8] == 0);
  ck_assert_uint_eq (cluster->memory_bytes, G_GUINT64_CONSTANT (84932978278));
  ck_assert (cluster->memory_bytes_per_s == 3.35e12);
  ck_assert (cluster->link_bytes_per_s == 450e9);
  ck_assert (cluster->nic_bytes_per_s == 50e9);
  ck_assert_int_eq (cluster->link_latency_ns, 2000);
  ck_assert_int_eq (cluster->nic_latency_ns, 5000);
}
END_TEST

START_TEST (one_node_of_a_device)
{
  g_autoptr (PlanCluster) eight = plan_cluster_new ("h100-80gb:8", NULL);
  g_autoptr (PlanCluster) one = plan_cluster_new ("h200-141gb", NULL);
  g_autoptr (PlanCluster) pcie = plan_cluster_new ("l40s:2", NULL);
  ck_assert (eight && one && pcie);
  ck_assert_int_eq (eight->nodes, 1);
  ck_assert_int_eq (eight->devices_per_node, 8);
  ck_assert_int_eq (plan_cluster_devices (one), 1);
  ck_assert_str_eq (one->name, "dgx-h200");
  ck_assert_int_eq (plan_cluster_devices (pcie), 2);
  ck_assert (pcie->nic_bytes_per_s == 0);
}
END_TEST

/* The same cluster as --cluster with that size. */
START_TEST (sizes_are_like_specs)
{
  static const struct
  {
    const char *from;
    gint64 devices;
    const char *to;
  } cases[] = {
    { "dgx-h100:1", 64, "dgx-h100:8" }, { "dgx-h100:8", 4, "h100-80gb:4" },
    { "dgx-h100:8", 8, "dgx-h100:1" },  { "gb200-nvl72:2", 2, "gb200:2" },
    { "rtx4090-8x:1", 1, "rtx4090:1" }, { "gb200-nvl72:18", 144, "gb200-nvl72:36" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autoptr (PlanCluster) from = plan_cluster_new (cases[i].from, NULL);
      g_autoptr (PlanCluster) to = plan_cluster_new (cases[i].to, NULL);
      g_autoptr (PlanCluster) resized = plan_cluster_resize (from, cases[i].devices, NULL);
      g_autofree char *expected = plan_cluster_print (to);
      g_autofree char *got = plan_cluster_print (resized);
      ck_assert_str_eq (got, expected);
      ck_assert_int_eq (plan_cluster_devices (resized), cases[i].devices);
    }
}
END_TEST

/* Other forms that people write, beside NAME:N. */
START_TEST (reads_other_forms)
{
  static const char *const same[][2] = {
    { "8xH100", "dgx-h100:1" },
    { "8 x h100", "dgx-h100" },
    { "H100x8", "dgx-h100:1" },
    { "h100*4", "h100-80gb:4" },
    { "2x8xH100", "dgx-h100:2" },
    { "8xh100:2", "dgx-h100:2" },
    { "a100-80gb:16", "dgx-a100:2" },
    { "16xA100-80GB", "dgx-a100:2" },
    { "DGX H100:4", "dgx-h100:4" },
    { "dgxh100:4", "dgx-h100:4" },
    { "4xdgx-h100", "dgx-h100:4" },
    { "dgx-h100x4", "dgx-h100:4" },
    { "1x4xH100", "h100-80gb:4" },
    { "8x4090", "rtx4090:8" },
    { "4090x8", "rtx4090:8" },
    { "gb200:8", "gb200-nvl72:2" },
    { "rtx4090-8x:2", "rtx4090-8x:2" },
    { "p5.48xlarge:4", "aws-p5:4" },
    { "p4de.24xlarge:2", "aws-p4de:2" },
    { "p6-b200.48xlarge:2", "aws-p6-b200:2" },
    { "p6-b300", "aws-p6-b300:1" },
    { "p6e-gb200.36xlarge:18", "aws-p6e-gb200:18" },
    { "g6e.48xlarge", "aws-g6e:1" },
    { "g6.48xlarge", "aws-g6:1" },
    { "ND96isr_H200_v5", "azure-ndh200v5:1" },
    { "Standard_ND96amsr_A100_v4:4", "azure-ndma100v4:4" },
    { "Standard_ND128isr_NDR_GB200_v6:18", "azure-ndgb200v6:18" },
    { "ND128isr_GB300_v6", "azure-ndgb300v6:18" },
    { "a3-highgpu-8g:2", "gcp-a3-high:2" },
    { "a4x-highgpu-4g", "gcp-a4x:18" },
    { "BM.GPU4.8", "oci-a100-40gb:1" },
    { "BM.GPU.A100-v2.8:2", "oci-a100:2" },
    { "BM.GPU.H200.8", "oci-h200:1" },
    { "BM.GPU.B200.8", "oci-b200:1" },
    { "2 x Standard_ND96isr_H100_v5", "azure-ndv5:2" },
    { "a3-ultragpu-8g", "gcp-a3-ultra:1" },
    { "NVIDIA H100-SXM5-80GB:8", "dgx-h100:1" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (same); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanCluster) one = plan_cluster_new (same[i][0], &error);
      g_autoptr (PlanCluster) other = plan_cluster_new (same[i][1], NULL);
      ck_assert_msg (one, "%s: %s", same[i][0], error ? error->message : "");
      g_autofree char *got = plan_cluster_print (one);
      g_autofree char *expected = plan_cluster_print (other);
      ck_assert_str_eq (got, expected);
    }
}
END_TEST

START_TEST (sizes_are_whole_nodes)
{
  static const gint64 sizes[] = { 0, -8, 9, 12, 8000008 };
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:2", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanCluster) none = plan_cluster_resize (cluster, sizes[i], &error);
      ck_assert_ptr_null (none);
      ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
      ck_assert_ptr_nonnull (strstr (error->message, "neither a part of a node, which has 8"));
    }
}
END_TEST

static const struct
{
  const char *spec, *message;
  int code;
} bad_specs[] = {
  { "dgx-h10", "cluster: 'dgx-h10' is neither a shipped cluster", PLAN_ERROR_INVALID },
  { "dgx-h10", "did you mean 'dgx-h100'?", PLAN_ERROR_INVALID },
  { "p5.47xlarge", "did you mean 'aws-p5'?", PLAN_ERROR_INVALID },
  { "nonesuch:4", "known are dgx-a100, dgx-h100, dgx-h200, dgx-b200, dgx-b300,",
    PLAN_ERROR_INVALID },
  { "h10-80gb:8", "did you mean 'h100-80gb'?", PLAN_ERROR_INVALID },
  { "gb200:9",
    "a node of gb200-nvl72 has 4 of gb200, and 9 are no whole nodes: write gb200-nvl72:3",
    PLAN_ERROR_INVALID },
  { "8xA100", "cluster: 'A100' may be any of a100-40gb, a100-80gb,", PLAN_ERROR_INVALID },
  { "2x4xH100", "a node of dgx-h100 has 8 of h100-80gb, not 4: write dgx-h100:2 for 2 nodes",
    PLAN_ERROR_INVALID },
  { "2x8xdgx-h100", "cluster: dgx-h100 is a node with all its devices: write dgx-h100:2",
    PLAN_ERROR_INVALID },
  { "8xh10-80gb", "did you mean 'h100-80gb'?", PLAN_ERROR_INVALID },
  { "v100:8", "cluster: 'v100' may be any of v100-16gb, v100-32gb: write one of these, as in ",
    PLAN_ERROR_INVALID },
  { "A100", "'A100' may be any of a100-40gb, a100-80gb, a100-pcie-40gb, a100-pcie-80gb: ",
    PLAN_ERROR_INVALID },
  { "a100-pcie:4", "any of a100-pcie-40gb, a100-pcie-80gb: write one", PLAN_ERROR_INVALID },
  { "v100-64gb", "did you mean 'v100-16gb'?", PLAN_ERROR_INVALID },
  { "h100-sxm6-80gb:8", "did you mean 'h100-80gb'?", PLAN_ERROR_INVALID },
  { "rtx:8",
    "did you mean one of rtx4090-8x, rtx4090-1x, rtxpro6000-8x, rtxa6000-8x, rtx3090-8x, "
    "rtx5090-8x, rtx6000ada-8x, rtxa6000, rtx4090, rtxpro6000, rtx3090, rtx5090, rtx6000ada?",
    PLAN_ERROR_INVALID },
  { "4090:9", "a node of rtx4090-8x has 8 of rtx4090, and 9 are no whole nodes",
    PLAN_ERROR_INVALID },
  { "", "cluster: '' is neither", PLAN_ERROR_INVALID },
  { "dgx-h100:", "cluster: the number behind the colon: '' is not a whole number",
    PLAN_ERROR_INVALID },
  { "dgx-h100:0", "the number behind the colon: '0' is out of range", PLAN_ERROR_INVALID },
  { "dgx-h100:-1", "the number behind the colon: '-1' is out of range", PLAN_ERROR_INVALID },
  { "dgx-h100:2000000", "'2000000' is out of range: it must be from 1 to 1000000",
    PLAN_ERROR_INVALID },
  { "h100-80gb:12",
    "cluster: a node of dgx-h100 has 8 of h100-80gb, and 12 are no whole nodes: write dgx-h100:2",
    PLAN_ERROR_INVALID },
  { "./none.ini", "./none.ini: No such file", PLAN_ERROR_IO },
  { "/dev/zero", "/dev/zero: not a regular file", PLAN_ERROR_IO },
};

START_TEST (refuses_spec)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = plan_cluster_new (bad_specs[_i].spec, &error);
  ck_assert_ptr_null (cluster);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, bad_specs[_i].code), "%s", error->message);
  ck_assert_msg (strstr (error->message, bad_specs[_i].message), "%s", error->message);
}
END_TEST

/* Names that people, data sheets and drivers use for devices. */
static const struct
{
  const char *word, *device;
} other_names[] = {
  { "V100-SXM2-32GB", "v100-32gb" },
  { "Tesla V100-SXM2-16GB", "v100-16gb" },
  { "A100-SXM-40GB", "a100-40gb" },
  { "NVIDIA A100-SXM4-80GB", "a100-80gb" },
  { "a100-80gb-pcie", "a100-pcie-80gb" },
  { "A100-PCIe-80GB", "a100-pcie-80gb" },
  { "NVIDIA A100 80GB PCIe", "a100-pcie-80gb" },
  { "a100-40gb-pcie", "a100-pcie-40gb" },
  { "a800", "a800-80gb" },
  { "A800-SXM-80GB", "a800-80gb" },
  { "h100", "h100-80gb" },
  { "H100-SXM-80GB", "h100-80gb" },
  { "NVIDIA H100 80GB HBM3", "h100-80gb" },
  { "h100-96gb", "h100-96gb-hbm2e" },
  { "H100-96GB-HBM2e-500W", "h100-96gb-hbm2e" },
  { "h100-pcie", "h100-pcie" },
  { "H100-PCIe-80GB", "h100-pcie" },
  { "h800", "h800-80gb" },
  { "H800-SXM-80GB", "h800-80gb" },
  { "h20", "h20-96gb" },
  { "h200", "h200-141gb" },
  { "H200-SXM-141GB", "h200-141gb" },
  { "gh200", "gh200-96gb" },
  { "GH200-96GB", "gh200-96gb" },
  { "B200-SXM-180GB", "b200" },
  { "GB200-186GB", "gb200" },
  { "B300-SXM-288GB", "b300" },
  { "GB300-288GB", "gb300" },
  { "a6000", "rtxa6000" },
  { "L40S-48GB", "l40s" },
  { "4090", "rtx4090" },
  { "rtx-4090", "rtx4090" },
  { "RTX-4090-24GB", "rtx4090" },
  { "NVIDIA GeForce RTX 4090", "rtx4090" },
  { "rtx_pro_6000", "rtxpro6000" },
  { "RTX 3090", "rtx3090" },
  { "A40-48GB", "a40" },
  { "A10", "a10" },
  { "NVIDIA L4", "l4" },
  { "NVIDIA GeForce RTX 5090", "rtx5090" },
  { "NVIDIA RTX 6000 Ada Generation", "rtx6000ada" },
  { "RTX-PRO-6000-Blackwell-96GB", "rtxpro6000" },
};

START_TEST (devices_have_other_names)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *spec = g_strdup_printf ("%s:1", other_names[_i].word);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (spec, &error);
  ck_assert_msg (cluster != NULL, "%s", error ? error->message : "");
  ck_assert_str_eq (cluster->device_name, other_names[_i].device);
  ck_assert_int_eq (plan_cluster_devices (cluster), 1);
  ck_assert (plan_cluster_is_shipped (other_names[_i].word));
}
END_TEST

START_TEST (what_is_shipped_is_known)
{
  ck_assert (plan_cluster_is_shipped ("dgx-h100"));
  ck_assert (plan_cluster_is_shipped ("v100")); /* one of two v100 devices */
  ck_assert (!plan_cluster_is_shipped ("dgx"));
  ck_assert (!plan_cluster_is_shipped ("nvidia"));
  ck_assert (!plan_cluster_is_shipped (""));
  for (const char *const *name = plan_cluster_devices_shipped (); *name; name++)
    {
      g_autoptr (PlanCluster) one = plan_cluster_new (*name, NULL);
      ck_assert_msg (one && g_str_equal (one->device_name, *name), "%s", *name);
    }
}
END_TEST

/* Descriptions of a box may use these names, too. */
START_TEST (files_take_other_names)
{
  static const char text[] = "[box]\ndevices_per_node=2\ndevice=A100-80GB-PCIe\n"
                             "link_bandwidth=31 GB/s\nlink_latency=3us\n";
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) box = plan_cluster_parse (text, "box.ini", &error);
  ck_assert_msg (box != NULL, "%s", error ? error->message : "");
  ck_assert_str_eq (box->device_name, "a100-pcie-80gb");
  ck_assert (box->peak_flops[PLAN_DTYPE_BF16] == 312e12);
  check_prints_back (box);
}
END_TEST

#define HEAD "[box]\ndevices_per_node=2\ndevice=x\n"

/* A part of a cluster has the whole cluster's site. */
START_TEST (sites_stay)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) whole = plan_cluster_parse (
      "[box]\ndevices_per_node=8\ndevice=h100-80gb\nsite=rack-7\n", "c.ini", &error);
  ck_assert_msg (whole != NULL, "%s", error ? error->message : "");
  check_prints_back (whole);
  g_autoptr (PlanCluster) part = plan_cluster_resize (whole, 2, &error);
  ck_assert_msg (part != NULL, "%s", error ? error->message : "");
  ck_assert_str_eq (part->site, "rack-7");
}
END_TEST

START_TEST (least_file)
{
  g_autoptr (PlanCluster) cluster = plan_cluster_parse ("# mine\n\n" HEAD, "c.ini", NULL);
  ck_assert_ptr_nonnull (cluster);
  ck_assert_str_eq (cluster->name, "box");
  ck_assert_str_eq (cluster->source, "not stated");
  ck_assert_int_eq (cluster->nodes, 1);
  ck_assert_int_eq (cluster->kind, PLAN_DEVICE_GPU);
  ck_assert_uint_eq (cluster->memory_bytes, 0);
}
END_TEST

START_TEST (units_are_read)
{
  g_autoptr (PlanCluster) c = plan_cluster_parse (
      HEAD
      "kind = cpu\nnodes = 3\npeak_bf16 = 1.5 PFLOP/s\npeak_fp32=67e3 GFLOP/s\nmemory = 80GB \n"
      "memory_bandwidth = 0.864TB/s\nlink_bandwidth = 400 Gbit/s\nlink_latency = 2.3 us\n"
      "nic_bandwidth = 1 GiB/s\nnic_latency = 1 ms\nsource=a\\nb\n",
      "c.ini", NULL);
  ck_assert_ptr_nonnull (c);
  ck_assert_int_eq (c->kind, PLAN_DEVICE_CPU);
  ck_assert_int_eq (plan_cluster_devices (c), 6);
  ck_assert (c->peak_flops[PLAN_DTYPE_BF16] == 1.5e15 && c->peak_flops[PLAN_DTYPE_FP32] == 67e12);
  ck_assert_uint_eq (c->memory_bytes, G_GUINT64_CONSTANT (80000000000));
  ck_assert (c->memory_bytes_per_s == 864e9 && c->link_bytes_per_s == 50e9);
  ck_assert (c->nic_bytes_per_s == (double)PLAN_GIB);
  ck_assert_int_eq (c->link_latency_ns, 2300);
  ck_assert_int_eq (c->nic_latency_ns, 1000000);
  ck_assert_str_eq (c->source, "a\nb");
}
END_TEST

static const struct
{
  const char *text, *message;
} bad_files[] = {
  { "", "c.ini: no section; write [NAME]" },
  { "nodes=1\n", "c.ini: " },
  { "[box]\ndevice=x\n", "c.ini: [box] devices_per_node: missing" },
  { "[box]\ndevices_per_node=2\n", "c.ini: [box] device: missing" },
  { "[local/]\n", "[local/] name: '' may have only letters" },
  { "[a b]\n", "c.ini: [a b] name: 'a b' may have only letters" },
  { HEAD "device=y\n", "c.ini: line 4: 'device': given twice" },
  { HEAD "[other]\n", "c.ini: line 4: a second section; a file describes one cluster" },
  { HEAD "[box]\nnodes=1\n", "c.ini: line 4: a second section" },
  { HEAD "memery=80GB\n",
    "c.ini: [box] 'memery' is not a key of a cluster: did you mean 'memory'?" },
  { HEAD "memory[de]=80GB\n", "'memory[de]' is not a key" },
  { HEAD "device=a b\n", "line 4" },
  { "[box]\ndevices_per_node=2\ndevice=a b\n", "[box] device: 'a b' may have only letters" },
  { "[box]\ndevices_per_node=2\ndevice=b200\nsite=our rack\n",
    "[box] site: 'our rack' may have only letters" },
  { "[box]\ndevices_per_node=0\n", "[box] devices_per_node: '0' is out of range" },
  { HEAD "nodes=1.5\n", "[box] nodes: '1.5' is not a whole number" },
  { HEAD "kind=tpu\n", "[box] kind: 'tpu' must be gpu or cpu" },
  { HEAD "memory=80 Gb\n", "[box] memory: '80 Gb' is not a size: write for example" },
  { HEAD "memory=0\n", "[box] memory: '0' is not the memory of a device" },
  { HEAD "memory=16000000TiB\n", "is not the memory of a device" },
  { HEAD "peak_bf16=989.5\n",
    "[box] peak_bf16: '989.5' is not a number with a unit such as 989.5 TFLOP/s" },
  { HEAD "peak_bf16=989.5 TFLOPS\n", "is not a number with a unit such as 989.5 TFLOP/s" },
  { HEAD "peak_bf16=TFLOP/s\n", "is not a number with a unit" },
  { HEAD "peak_bf16=-1 TFLOP/s\n", "peak_bf16: '-1 TFLOP/s' is not a number with a unit" },
  { HEAD "peak_bf16=nan TFLOP/s\n", "is not a number with a unit" },
  { HEAD "peak_bf16=0 TFLOP/s\n", "peak_bf16: '0 TFLOP/s' says nothing: leave the key out" },
  { HEAD "peak_bf16=1e20 TFLOP/s\n", "is beyond any machine" },
  { HEAD "peak_bf61=1 TFLOP/s\n",
    "'peak_bf61' is not a key of a cluster: did you mean 'peak_bf16'?" },
  { HEAD "boost_clock=1830\n", "boost_clock: '1830' is not a number with a unit such as 1830 MHz" },
  { HEAD "power=0.5 W\n", "power: '0.5 W' is not a whole number of watts" },
  { HEAD "compute_capability=9\n", "compute_capability: '9' is not a version such as 9.0" },
  { HEAD "compute_capability=9.00\n", "is not a version such as 9.0" },
  { HEAD "nvls=maybe\n", "nvls: 'maybe' must be yes or no" },
  { HEAD "sm_count=0\n", "sm_count: '0' is out of range" },
  { HEAD "sm_count=-4\n", "sm_count: '-4' is out of range" },
  { HEAD "sm_count=99999999999999999999\n",
    "sm_count: '99999999999999999999' does not fit 64 bits" },
  { HEAD "l2=-1 MiB\n", "l2: '-1 MiB' is not a size" },
  { HEAD "l2=50 MiB #\n", "l2: '50 MiB #' has no source behind the #" },
  { HEAD "l2=# data sheet\n", "l2: '' is not a size" },
  { HEAD "memory=2GB\nmemory_nominal=1GB\n", "[box] memory: 2 GB is more than memory_nominal" },
  { "[box]\ndevices_per_node=8\ndevice=x\nmesh_links=6\n",
    "mesh_links: 6 is less than one to each other device of a node" },
  { HEAD "nvlink_domain=3\n",
    "nvlink_domain: 3 neither divides devices_per_node nor is a multiple of it" },
  { HEAD "nics_per_node=1\nnic_rate=10 GB/s\nnic_bandwidth=6 GB/s\n",
    "nic_bandwidth: 6 GB/s for each device is more than nics_per_node at nic_rate carry" },
  { HEAD "[gpu y]\n", "c.ini: [gpu y] is not the cluster's device, which is x" },
  { HEAD "[gpu x]\nnodes=2\n",
    "c.ini: [gpu x] key: 'nodes' is not a fact of a device: it belongs to the cluster" },
  { HEAD "[gpu x]\nl2=1\nl2=1\n", "c.ini: line 6: 'l2': given twice" },
  { HEAD "[gpu x]\n[gpu x]\n", "c.ini: line 5: '[gpu x]': given twice" },
  { "[gpu x]\nl2=1\n", "c.ini: no section; write [NAME]" },
  { HEAD "link_bandwidth=450 GB\n",
    "link_bandwidth: '450 GB' is not a number with a unit such as 450 GB/s or 400 Gbit/s" },
  { HEAD "link_bandwidth=450 Gb/s\n", "is not a number with a unit such as 450 GB/s" },
  { HEAD "link_latency=2\n", "link_latency: '2' is not a number with a unit such as 2 us" },
  { HEAD "link_latency=0.5 ns\n", "'0.5 ns' is not a whole number of nanoseconds" },
  { HEAD "nic_latency=2 s\n", "nic_latency: '2 s' is beyond any machine" },
  { HEAD "source=\\q\n", "[box] source: " },
  { HEAD "source=\xff\n", "c.ini: byte 41 is not UTF-8 text" },
  { HEAD "rubbish\n", "c.ini: " },
};

START_TEST (refuses_file)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = plan_cluster_parse (bad_files[_i].text, "c.ini", &error);
  ck_assert_ptr_null (cluster);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID), "%s", error->message);
  ck_assert_msg (strstr (error->message, bad_files[_i].message), "%s", error->message);
  ck_assert_msg (g_str_has_prefix (error->message, "c.ini: "), "%s", error->message);
}
END_TEST

START_TEST (refuses_what_is_too_large)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *blanks = g_strnfill (10 << 20, '\n');
  g_autofree char *text = g_strconcat (HEAD, blanks, NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_parse (text, "c.ini", &error);
  ck_assert_ptr_null (cluster);
  ck_assert_str_eq (error->message, "c.ini: larger than 10485760 bytes, which no such file is");
}
END_TEST

START_TEST (reads_files)
{
  g_autofree char *folder = g_dir_make_tmp ("fsdplan-XXXXXX", NULL);
  g_autofree char *path = g_build_filename (folder, "mine.ini", NULL);
  g_autofree char *spec = g_strconcat (path, ":4", NULL);
  ck_assert (g_file_set_contents (path, HEAD "nodes=3\n", -1, NULL));
  g_autoptr (PlanCluster) as_written = plan_cluster_new (path, NULL);
  g_autoptr (PlanCluster) with_nodes = plan_cluster_new (spec, NULL);
  ck_assert (as_written && with_nodes);
  ck_assert_int_eq (as_written->nodes, 3);
  ck_assert_int_eq (with_nodes->nodes, 4);
  g_unlink (path);
  g_rmdir (folder);
}
END_TEST

START_TEST (missing_figure_is_named)
{
  static const struct
  {
    const char *key, *line;
  } steps[] = {
    { "peak_bf16", "peak_bf16=1 TFLOP/s\n" },
    { "memory", "memory=1GB\n" },
    { "memory_bandwidth", "memory_bandwidth=1 GB/s\n" },
    { "link_bandwidth", "link_bandwidth=1 GB/s\n" },
    { "link_latency", "link_latency=1 us\n" },
    { "nic_bandwidth", "nic_bandwidth=1 GB/s\n" },
    { "nic_latency", "nic_latency=1 us\n" },
  };
  g_autoptr (GString) text = g_string_new (HEAD "nodes=2\n");
  for (guint i = 0; i < G_N_ELEMENTS (steps); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanCluster) cluster = plan_cluster_parse (text->str, "c.ini", NULL);
      ck_assert (!plan_cluster_check_figures (cluster, PLAN_DTYPE_BF16, &error));
      for (guint j = 0; j < G_N_ELEMENTS (steps); j++)
        {
          g_autofree char *word = g_strdup_printf (" %s%c", steps[j].key, j < 6 ? ',' : ':');
          ck_assert_msg (!strstr (error->message, word) == (j < i), "%s", error->message);
        }
      /* The message gives an example, which is accepted. */
      g_auto (GStrv) lines = g_strsplit (strstr (error->message, "as in ") + 6, ", ", -1);
      g_autofree char *joined = g_strjoinv ("\n", lines);
      g_autofree char *mended = g_strconcat (text->str, joined, NULL);
      g_autoptr (PlanCluster) enough = plan_cluster_parse (mended, "c.ini", NULL);
      ck_assert (enough && plan_cluster_check_figures (enough, PLAN_DTYPE_BF16, NULL));
      g_string_append (text, steps[i].line);
    }
  g_autoptr (PlanCluster) whole = plan_cluster_parse (text->str, "c.ini", NULL);
  ck_assert (plan_cluster_check_figures (whole, PLAN_DTYPE_BF16, NULL));
}
END_TEST

/* Facts that follow from a changed fact change with it, whatever else is set, and the text has all
 * of them. */
START_TEST (other_hardware_is_a_cluster_too)
{
  static const char *const settings[]
      = { "nic_bandwidth=100Gbit/s", "peak_bf16=1.2 PFLOP/s", "memory=141GB", NULL };
  static const char *const both[] = { "nic_rate=25GB/s", "nic_bandwidth=20GB/s", NULL };
  static const char *const wrong[][2] = { { "nic_bandwith=1GB/s", "'nic_bandwidth'" },
                                          { "nic_bandwidth", "FACT=VALUE" },
                                          { "nic_bandwidth=fast", "nic_bandwidth: 'fast'" },
                                          { "memory=-1GB", "memory" },
                                          { "nvlink_domain=3", "nvlink_domain: 3" } };
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) sold = plan_cluster_new ("dgx-h100:2", &error);
  g_autoptr (PlanCluster) c = plan_cluster_new ("dgx-h100:2", &error);
  ck_assert (!plan_cluster_is_altered (c, FALSE));
  ck_assert_msg (plan_cluster_override (c, settings, &error), "%s", error ? error->message : "");
  ck_assert_double_eq (c->nic_bytes_per_s, 12.5e9);
  ck_assert_double_eq (c->nic_rate_bytes_per_s, sold->nic_rate_bytes_per_s / 4);
  ck_assert_double_eq (c->peak_flops[PLAN_DTYPE_BF16], 1.2e15);
  ck_assert_uint_eq (c->memory_bytes, G_GUINT64_CONSTANT (141000000000));
  ck_assert_uint_ge (c->memory_nominal_bytes, c->memory_bytes);
  ck_assert (plan_cluster_is_altered (c, FALSE) && plan_cluster_is_altered (c, TRUE));
  g_autofree char *text = plan_cluster_print (c);
  g_autoptr (PlanCluster) again = plan_cluster_parse (text, "text", &error);
  g_auto (GStrv) overrides = plan_cluster_overrides (again);
  g_autofree char *said = g_strjoinv (", ", overrides);
  ck_assert_str_eq (said, "peak_bf16=1200 TFLOP/s, memory=141 GB, nic_bandwidth=12.5 GB/s");
  ck_assert (plan_cluster_override (sold, both, &error));
  ck_assert_double_eq (sold->nic_bytes_per_s, 20e9);
  ck_assert_double_eq (sold->nic_rate_bytes_per_s, 25e9);
  ck_assert (!plan_cluster_is_altered (sold, TRUE));
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++)
    {
      const char *const one[] = { wrong[i][0], NULL };
      ck_assert (!plan_cluster_override (c, one, &error));
      ck_assert_msg (strstr (error->message, wrong[i][1]) != NULL, "%s", error->message);
      g_clear_error (&error);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cluster");
  TCase *tcase = tcase_create ("cluster");
  tcase_add_test (tcase, every_preset_is_sound);
  tcase_add_test (tcase, every_device_is_plausible);
  tcase_add_loop_test (tcase, every_measured_device_has_a_node, 0, G_N_ELEMENTS (measured));
  tcase_add_test (tcase, nvlink_reaches_over_nodes);
  tcase_add_test (tcase, reads_what_version_1_wrote);
  tcase_add_test (tcase, own_figures_win);
  tcase_add_test (tcase, facts_have_their_own_sources);
  tcase_add_test (tcase, figures_of_dgx_h100);
  tcase_add_test (tcase, one_node_of_a_device);
  tcase_add_test (tcase, sizes_are_like_specs);
  tcase_add_test (tcase, reads_other_forms);
  tcase_add_test (tcase, sizes_are_whole_nodes);
  tcase_add_loop_test (tcase, refuses_spec, 0, G_N_ELEMENTS (bad_specs));
  tcase_add_loop_test (tcase, devices_have_other_names, 0, G_N_ELEMENTS (other_names));
  tcase_add_test (tcase, what_is_shipped_is_known);
  tcase_add_test (tcase, other_hardware_is_a_cluster_too);
  tcase_add_test (tcase, files_take_other_names);
  tcase_add_test (tcase, least_file);
  tcase_add_test (tcase, sites_stay);
  tcase_add_test (tcase, units_are_read);
  tcase_add_loop_test (tcase, refuses_file, 0, G_N_ELEMENTS (bad_files));
  tcase_add_test (tcase, refuses_what_is_too_large);
  tcase_add_test (tcase, reads_files);
  tcase_add_test (tcase, missing_figure_is_named);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
