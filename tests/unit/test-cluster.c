/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cluster.h"
#include "planner/error.h"
#include "planner/units.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST (every_preset_is_sound)
{
  for (const char *const *name = plan_cluster_presets (); *name; name++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanCluster) cluster = plan_cluster_new (*name, &error);
      ck_assert_msg (cluster != NULL, "%s", error ? error->message : "");
      ck_assert_str_eq (cluster->name, *name);
      ck_assert_int_ge (plan_cluster_devices (cluster), 8);
      ck_assert (plan_cluster_check_figures (cluster, PLAN_DTYPE_BF16, NULL));
      g_autofree char *text = plan_cluster_print (cluster);
      g_autoptr (PlanCluster) again = plan_cluster_parse (text, "again", NULL);
      g_autofree char *text_again = plan_cluster_print (again);
      ck_assert_str_eq (text, text_again);
    }
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
  ck_assert (cluster->peak_flops[PLAN_DTYPE_E8M0] == 0);
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

static const struct
{
  const char *spec, *message;
  int code;
} bad_specs[] = {
  { "dgx-h10", "cluster: 'dgx-h10' is neither a shipped cluster", PLAN_ERROR_INVALID },
  { "dgx-h10", "did you mean 'dgx-h100'?", PLAN_ERROR_INVALID },
  { "nonesuch:4", "known are dgx-a100, dgx-h100, dgx-h200, dgx-b200, dgx-b300,",
    PLAN_ERROR_INVALID },
  { "", "cluster: '' is neither", PLAN_ERROR_INVALID },
  { "dgx-h100:", "cluster: the number behind the colon: '' is not a whole number",
    PLAN_ERROR_INVALID },
  { "dgx-h100:0", "the number behind the colon: '0' is out of range", PLAN_ERROR_INVALID },
  { "dgx-h100:-1", "the number behind the colon: '-1' is out of range", PLAN_ERROR_INVALID },
  { "dgx-h100:2000000", "'2000000' is out of range: it must be from 1 to 1000000",
    PLAN_ERROR_INVALID },
  { "h100-80gb:16",
    "cluster: a node of dgx-h100 has 8 of h100-80gb, not 16: dgx-h100:N is N whole nodes",
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

#define HEAD "[box]\ndevices_per_node=2\ndevice=x\n"

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
  { "[a b]\n", "c.ini: [a b] name: 'a b' may have only letters" },
  { HEAD "device=y\n", "c.ini: line 4: 'device': given twice" },
  { HEAD "[other]\n", "c.ini: line 4: a second section; a file describes one cluster" },
  { HEAD "[box]\nnodes=1\n", "c.ini: line 4: a second section" },
  { HEAD "memery=80GB\n",
    "c.ini: [box] 'memery' is not a key of a cluster: did you mean 'memory'?" },
  { HEAD "memory[de]=80GB\n", "'memory[de]' is not a key" },
  { HEAD "device=a b\n", "line 4" },
  { "[box]\ndevices_per_node=2\ndevice=a b\n", "[box] device: 'a b' may have only letters" },
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
    "peak_bf61: 'bf61' is not a number format: did you mean 'bf16'?" },
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
      g_autofree char *expected = g_strdup_printf (
          "cluster box: %s is not known and needed here: give it in an .ini file", steps[i].key);
      ck_assert (!plan_cluster_check_figures (cluster, PLAN_DTYPE_BF16, &error));
      ck_assert_str_eq (error->message, expected);
      g_string_append (text, steps[i].line);
    }
  g_autoptr (PlanCluster) whole = plan_cluster_parse (text->str, "c.ini", NULL);
  ck_assert (plan_cluster_check_figures (whole, PLAN_DTYPE_BF16, NULL));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cluster");
  TCase *tcase = tcase_create ("cluster");
  tcase_add_test (tcase, every_preset_is_sound);
  tcase_add_test (tcase, figures_of_dgx_h100);
  tcase_add_test (tcase, one_node_of_a_device);
  tcase_add_loop_test (tcase, refuses_spec, 0, G_N_ELEMENTS (bad_specs));
  tcase_add_test (tcase, least_file);
  tcase_add_test (tcase, units_are_read);
  tcase_add_loop_test (tcase, refuses_file, 0, G_N_ELEMENTS (bad_files));
  tcase_add_test (tcase, reads_files);
  tcase_add_test (tcase, missing_figure_is_named);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
