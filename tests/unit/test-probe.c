/* SPDX-License-Identifier: Apache-2.0 */
/* The probe on other machines: an exported topology, a fake NVML, texts of /proc. */
#include "config.h"

#include "exec/probe/probe-private.h"
#include "exec/probe/probe.h"
#include "planner/base/error.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

#define CPUINFO \
  "processor\t: 0\nmodel name\t: Imagined CPU @ 2.50GHz\ncpu MHz\t\t: 1234.5\n" \
  "flags\t\t: fpu fma avx2\n\nprocessor\t: 1\nmodel name\t: other\n"

static ExecHost
host_of (const char *processor)
{
  return (ExecHost){ .processor = g_strdup (processor),
                     .source = g_strdup ("test"),
                     .processors = 4,
                     .cores = 4,
                     .sockets = 1,
                     .memory_bytes = G_GUINT64_CONSTANT (64) << 30,
                     .clock_hz = 2e9,
                     .flops_per_cycle = 32 };
}

static char *
fake_nvml (void)
{
  return g_build_filename (g_getenv ("top_builddir"), "tests", "fake", "nvml-fake.so", NULL);
}

START_TEST (reads_cpuinfo)
{
  g_auto (ExecHost) host = { 0 };
  exec_host_read_cpuinfo (&host, CPUINFO);
  ck_assert_str_eq (host.processor, "Imagined CPU @ 2.50GHz");
  ck_assert (host.clock_hz == 2.5e9);
  ck_assert_int_eq (host.flops_per_cycle, 32);
  ck_assert_int_eq (host.bf16_per_cycle, 0);
  exec_host_read_cpuinfo (&host,
                          "cpu MHz : 1000\nmodel name : x\nflags : fpu avx512f avx512_bf16 \n");
  ck_assert (host.clock_hz == 1e9);
  ck_assert_int_eq (host.bf16_per_cycle, 128);
  exec_host_read_cpuinfo (&host, "flags : fpu avx512f avx512_bf16 amx_bf16 amx_tile\n");
  ck_assert_int_eq (host.bf16_per_cycle, 1024);
  exec_host_read_cpuinfo (&host, NULL);
  ck_assert_ptr_null (host.processor);
  ck_assert (host.clock_hz == 0);
  exec_host_read_cpuinfo (&host, "model name");
  ck_assert_ptr_null (host.processor);
}
END_TEST

START_TEST (reads_rates_of_ports)
{
  ck_assert (exec_host_parse_rate ("400 Gb/sec (4X NDR)\n") == 50e9);
  ck_assert (exec_host_parse_rate ("2.5 Gb/sec (1X SDR)") == 2.5e9 / 8);
  ck_assert (exec_host_parse_rate ("-1 Gb/sec") == 0);
  ck_assert (exec_host_parse_rate ("nan Gb/sec") == 0);
  ck_assert (exec_host_parse_rate ("400") == 0);
  ck_assert (exec_host_parse_rate ("") == 0);
}
END_TEST

START_TEST (counts_ports)
{
  static const char *const rates[] = { "400 Gb/sec (4X NDR)\n", "100 Gb/sec (2X HDR)\n", "down\n" };
  g_autofree char *folder = g_dir_make_tmp ("fsdplan-XXXXXX", NULL);
  g_auto (ExecHost) host = { 0 };
  for (guint i = 0; i < G_N_ELEMENTS (rates); i++)
    {
      g_autofree char *card = g_strdup_printf ("%s/mlx5_%u/ports/1", folder, i);
      g_autofree char *rate = g_build_filename (card, "rate", NULL);
      ck_assert_int_eq (g_mkdir_with_parents (card, 0700), 0);
      ck_assert (g_file_set_contents (rate, rates[i], -1, NULL));
    }
  exec_host_read_ports (&host, folder);
  ck_assert_int_eq (host.ports, 2);
  ck_assert (host.port_bytes_per_s == 12.5e9);
  ck_assert (!host.has_efa);
  g_autofree char *device = g_build_filename (folder, "mlx5_0", "device", NULL);
  g_autofree char *vendor = g_build_filename (device, "vendor", NULL);
  ck_assert_int_eq (g_mkdir (device, 0700), 0);
  ck_assert (g_file_set_contents (vendor, "0x15b3\n", -1, NULL));
  exec_host_read_ports (&host, folder);
  ck_assert (!host.has_efa);
  ck_assert (g_file_set_contents (vendor, "0x1d0f\n", -1, NULL));
  exec_host_read_ports (&host, folder);
  ck_assert (host.has_efa);
  g_remove (vendor);
  g_remove (device);
  exec_host_read_ports (&host, "/nonexistent");
  ck_assert (host.ports == 0 && !host.has_efa);
  for (guint i = 0; i < G_N_ELEMENTS (rates); i++)
    {
      static const char *const parts[] = { "/ports/1/rate", "/ports/1", "/ports", "" };
      for (guint p = 0; p < G_N_ELEMENTS (parts); p++)
        {
          g_autofree char *path = g_strdup_printf ("%s/mlx5_%u%s", folder, i, parts[p]);
          g_remove (path);
        }
    }
  g_rmdir (folder);
}
END_TEST

START_TEST (reads_a_topology)
{
  g_autofree char *xml
      = g_build_filename (g_getenv ("top_srcdir"), "tests", "fake", "machine.xml", NULL);
  g_auto (ExecHost) host = host_of ("before");
  g_autoptr (GError) error = NULL;
  ck_assert_msg (exec_host_read_topology (&host, xml, &error), "%s", error ? error->message : "");
  if (!exec_host_has_topology ())
    {
      ck_assert_str_eq (host.processor, "before");
      return;
    }
  ck_assert_str_eq (host.processor, "Imagined Processor 9");
  ck_assert_str_eq (host.source, "hwloc");
  ck_assert_int_eq (host.sockets, 2);
  ck_assert_int_eq (host.cores, 4);
  ck_assert_int_eq (host.processors, 8);
  ck_assert_int_eq (host.numa_nodes, 2);
  ck_assert_uint_eq (host.memory_bytes, G_GUINT64_CONSTANT (64) << 30);
  ck_assert_uint_eq (host.cache_bytes, 64 << 20);
  ck_assert_int_eq (host.nvswitches, 2);
  ck_assert (!exec_host_read_topology (&host, "/nonexistent.xml", &error));
  ck_assert_str_eq (error->message, "/nonexistent.xml: hwloc cannot read the topology");
}
END_TEST

START_TEST (describes_eight_gpus)
{
  g_autofree char *library = fake_nvml ();
  g_autoptr (GError) error = NULL;
  g_auto (ExecHost) host = host_of ("Imagined CPU");
  host.nvswitches = 4;
  host.ports = 8;
  host.port_bytes_per_s = 50e9;
  g_autoptr (GArray) gpus = exec_gpus_read (library, &error);
  ck_assert_msg (gpus != NULL, "%s", error ? error->message : "");
  ck_assert_uint_eq (gpus->len, 8);
  g_autoptr (PlanCluster) c = exec_probe_describe (&host, gpus, 0, &error);
  ck_assert_msg (c != NULL, "%s", error ? error->message : "");
  ck_assert_int_eq (c->kind, PLAN_DEVICE_GPU);
  ck_assert_str_eq (c->device_name, "h100-80gb");
  ck_assert_int_eq (plan_cluster_devices (c), 8);
  /* These facts come from the driver. */
  ck_assert_int_eq (c->compute_capability, 90);
  ck_assert_int_eq (c->power_w, 650);
  ck_assert (c->nvlink_bytes_per_s == 450e9 && c->link_bytes_per_s == 450e9);
  ck_assert_int_eq (c->nvlink_domain, 8);
  ck_assert_str_eq (plan_cluster_source_of (c, PLAN_FACT_POWER), "NVML");
  /* These come from the data sheet. */
  ck_assert (c->peak_flops[PLAN_DTYPE_BF16] == 989.5e12);
  ck_assert_uint_eq (c->memory_bytes, G_GUINT64_CONSTANT (84932978278));
  ck_assert (strstr (plan_cluster_source_of (c, PLAN_FACT_PEAK_BF16), "data sheet"));
  ck_assert (plan_cluster_assumes (c, PLAN_FACT_LINK_LATENCY));
  /* These come from the host. */
  ck_assert_int_eq (c->nvls, PLAN_ANSWER_YES);
  ck_assert (c->nic_bytes_per_s == 50e9);
  ck_assert_int_eq (c->nic_latency_ns, 5000);
  host.has_efa = TRUE;
  g_autoptr (PlanCluster) far = exec_probe_describe (&host, gpus, 0, &error);
  ck_assert_int_eq (far->nic_latency_ns, 40000);
  ck_assert (plan_cluster_assumes (far, PLAN_FACT_NIC_LATENCY));
  ck_assert (plan_cluster_check_figures (c, PLAN_DTYPE_E4M3, NULL));
  g_autofree char *text = plan_cluster_print (c);
  g_autoptr (PlanCluster) again = plan_cluster_parse (text, "again", &error);
  ck_assert_msg (again != NULL, "%s", error ? error->message : "");
  g_autofree char *text_again = plan_cluster_print (again);
  ck_assert_str_eq (text, text_again);
}
END_TEST

START_TEST (takes_some_of_the_gpus)
{
  g_autofree char *library = fake_nvml ();
  g_autoptr (GError) error = NULL;
  g_auto (ExecHost) host = host_of ("Imagined CPU");
  g_autoptr (GArray) gpus = exec_gpus_read (library, NULL);
  g_autoptr (PlanCluster) two = exec_probe_describe (&host, gpus, 2, NULL);
  g_autoptr (PlanCluster) all = exec_probe_describe (&host, gpus, 0, NULL);
  g_autoptr (PlanCluster) nine = exec_probe_describe (&host, gpus, 9, &error);
  ck_assert_int_eq (plan_cluster_devices (two), 2);
  ck_assert_int_eq (two->nvlink_domain, 2);
  ck_assert_str_eq (two->name, all->name);
  ck_assert_ptr_null (nine);
  ck_assert_str_eq (error->message,
                    "local: this machine has 8 of NVIDIA H100 80GB HBM3, not 9: write local:8, or "
                    "local-cpu:9 for its processors");
}
END_TEST

/* A launcher may show each of 8 ranks its own GPU alone. If there are not as many such ranks, the
 * machine is another one that has more of them. */
START_TEST (counts_gpus_of_ranks)
{
  g_autofree char *library = fake_nvml ();
  g_auto (ExecHost) host = host_of ("Imagined CPU");
  g_autoptr (GArray) seen = exec_gpus_read (library, NULL), all = exec_gpus_read (library, NULL);
  g_array_remove_range (seen, 0, 7);
  g_autoptr (PlanCluster) nodes = exec_probe_describe_ranks (&host, seen, 8, 0, FALSE, NULL);
  ck_assert (nodes->nodes == 8 && nodes->devices_per_node == 1);
  g_autoptr (PlanCluster) node = exec_probe_describe_ranks (&host, seen, 8, 8, FALSE, NULL);
  g_autoptr (PlanCluster) whole = exec_probe_describe_ranks (&host, all, 8, 8, FALSE, NULL);
  g_autofree char *one = plan_cluster_print (node), *other = plan_cluster_print (whole);
  ck_assert (node->nodes == 1 && node->devices_per_node == 8);
  ck_assert_str_eq (one, other);
}
END_TEST

START_TEST (leaves_other_gpus_out)
{
  g_autofree char *library = fake_nvml ();
  g_auto (ExecHost) host = host_of ("Imagined CPU");
  g_setenv ("FAKE_NVML", "odd", TRUE);
  g_autoptr (GArray) gpus = exec_gpus_read (library, NULL);
  g_unsetenv ("FAKE_NVML");
  g_autoptr (PlanCluster) alike = exec_probe_describe (&host, gpus, 0, NULL);
  ck_assert_int_eq (plan_cluster_devices (alike), 7);
  /* A GPU without a shipped data sheet: only what the driver says is known. */
  g_array_remove_range (gpus, 0, 7);
  g_autoptr (PlanCluster) odd = exec_probe_describe (&host, gpus, 0, NULL);
  ck_assert_str_eq (odd->device_name, "imagined-gpu-1");
  ck_assert_uint_eq (odd->memory_bytes, G_GUINT64_CONSTANT (81559) << 20);
  ck_assert (odd->peak_flops[PLAN_DTYPE_BF16] == 0);
  ck_assert (!plan_cluster_check_figures (odd, PLAN_DTYPE_BF16, NULL));
}
END_TEST

static const struct
{
  const char *told, *message;
} failures[] = {
  { "init", "nvml-fake.so: nvmlInit_v2: the fake was told to fail" },
  { "name", "nvml-fake.so: GPU 0: the fake was told to fail" },
};

START_TEST (reports_what_nvml_refuses)
{
  g_autofree char *library = fake_nvml ();
  g_autoptr (GError) error = NULL;
  g_setenv ("FAKE_NVML", failures[_i].told, TRUE);
  g_autoptr (GArray) gpus = exec_gpus_read (library, &error);
  g_unsetenv ("FAKE_NVML");
  ck_assert_ptr_null (gpus);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_BACKEND));
  ck_assert_msg (g_str_has_suffix (error->message, failures[_i].message), "%s", error->message);
}
END_TEST

START_TEST (no_driver_is_no_gpu)
{
  g_autofree char *library = fake_nvml ();
  g_autoptr (GError) error = NULL;
  g_setenv ("FAKE_NVML", "no-driver", TRUE);
  g_autoptr (GArray) idle = exec_gpus_read (library, &error);
  g_unsetenv ("FAKE_NVML");
  g_autoptr (GArray) none = exec_gpus_read ("libfsdplan-has-none.so", &error);
  ck_assert (idle && idle->len == 0 && none && none->len == 0 && !error);
}
END_TEST

/* A library that can be loaded, but is not NVML. */
START_TEST (another_library_is_refused)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) gpus = exec_gpus_read ("libc.so.6", &error);
  ck_assert_ptr_null (gpus);
  ck_assert_str_eq (error->message, "libc.so.6: nvmlInit_v2: this driver does not have it");
}
END_TEST

/* Every shipped device has a driver's name, but one that a single company has. */
START_TEST (names_of_drivers_are_shipped)
{
  ck_assert_str_eq (exec_gpu_shipped ("NVIDIA H100 80GB HBM3"), "h100-80gb");
  ck_assert_str_eq (exec_gpu_shipped ("Tesla V100-SXM2-32GB"), "v100-32gb");
  ck_assert_str_eq (exec_gpu_shipped ("NVIDIA GeForce RTX 4090"), "rtx4090");
  ck_assert_ptr_null (exec_gpu_shipped ("NVIDIA H100"));
  ck_assert_ptr_null (exec_gpu_shipped ("NVIDIA "));
  g_autoptr (PlanCluster) device
      = plan_cluster_new_device (exec_gpu_shipped ("NVIDIA B300 SXM6 AC"), NULL);
  ck_assert_ptr_nonnull (device);
}
END_TEST

START_TEST (processors_are_shared)
{
  g_auto (ExecHost) host = host_of ("Imagined CPU (R)");
  g_autoptr (PlanCluster) two = exec_probe_describe (&host, NULL, 2, NULL);
  g_autoptr (PlanCluster) eight = exec_probe_describe (&host, NULL, 8, NULL);
  ck_assert_int_eq (two->kind, PLAN_DEVICE_CPU);
  ck_assert_str_eq (two->device_name, "imagined-cpu-r-2-threads");
  ck_assert_int_eq (two->threads, 2);
  ck_assert (two->peak_flops[PLAN_DTYPE_FP32] == 128e9);
  ck_assert_str_eq (eight->device_name, "imagined-cpu-r");
  ck_assert_int_eq (eight->threads, 1);
  ck_assert (eight->peak_flops[PLAN_DTYPE_FP32] == 32e9);
  ck_assert_uint_eq (eight->memory_bytes, G_GUINT64_CONSTANT (8) << 30);
  ck_assert (plan_cluster_assumes (two, PLAN_FACT_PEAK_FP32));
  ck_assert (plan_cluster_assumes (two, PLAN_FACT_MEMORY_BANDWIDTH));
  ck_assert (!plan_cluster_assumes (two, PLAN_FACT_MEMORY));
  ck_assert (plan_cluster_check_figures (two, PLAN_DTYPE_BF16, NULL));
}
END_TEST

/* Four cores: a rank's rate grows up to its share of them. */
START_TEST (ranks_have_threads)
{
  static const struct
  {
    gint64 threads;
    const char *name;
    double rate;
  } steps[] = { { 1, "imagined-cpu-r", 64e9 },
                { 2, "imagined-cpu-r-2-threads", 128e9 },
                { 12, "imagined-cpu-r-12-threads", 128e9 },
                { 1, "imagined-cpu-r", 64e9 } };
  g_auto (ExecHost) host = host_of ("Imagined CPU (R)");
  g_autoptr (PlanCluster) self = exec_probe_describe (&host, NULL, 2, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (steps); i++)
    {
      exec_probe_set_threads (self, steps[i].threads);
      ck_assert_str_eq (self->device_name, steps[i].name);
      ck_assert_int_eq (self->threads, steps[i].threads);
      ck_assert (self->peak_flops[PLAN_DTYPE_FP32] == steps[i].rate);
    }
}
END_TEST

START_TEST (fingerprint_is_of_what_stays)
{
  g_auto (ExecHost) a = host_of ("Imagined CPU"), b = host_of ("Imagined CPU"),
                    other = host_of ("Imagined CPU 2");
  b.clock_hz = 3e9;            /* the clock rate of the moment */
  b.memory_bytes -= 123456789; /* a kernel keeps some memory for itself */
  g_autoptr (PlanCluster) of_a = exec_probe_describe (&a, NULL, 1, NULL);
  g_autoptr (PlanCluster) of_b = exec_probe_describe (&b, NULL, 4, NULL);
  g_autoptr (PlanCluster) of_other = exec_probe_describe (&other, NULL, 1, NULL);
  ck_assert_uint_eq (strlen (of_a->name), strlen ("local/") + 8);
  ck_assert_str_eq (of_a->name, of_b->name);
  ck_assert_str_ne (of_a->name, of_other->name);
}
END_TEST

START_TEST (this_machine)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) one = exec_probe_processors (1, &error);
  ck_assert_msg (one != NULL, "%s", error ? error->message : "");
  g_autoptr (PlanCluster) two = exec_probe_processors (2, NULL);
  ck_assert_str_eq (one->name, two->name);
  ck_assert_uint_gt (one->memory_bytes, 0);
  ck_assert (!exec_host_has_topology () || one->host_cores > 0);
  ck_assert (plan_cluster_check_figures (two, PLAN_DTYPE_BF16, NULL));
}
END_TEST

/* The network between several machines is assumed, which is said, unless the kernel names a port;
 * the text keeps that. */
START_TEST (machines_like_this_one)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = exec_probe_processors (2, &error);
  ck_assert_msg (cluster != NULL, "%s", error ? error->message : "");
  cluster->nics_per_node = 0;
  cluster->nic_rate_bytes_per_s = cluster->nic_bytes_per_s = 0;
  exec_probe_set_nodes (cluster, 1);
  ck_assert (!plan_cluster_knows (cluster, PLAN_FACT_NIC_BANDWIDTH));
  exec_probe_set_nodes (cluster, 3);
  ck_assert_int_eq (plan_cluster_devices (cluster), 6);
  ck_assert (plan_cluster_check_figures (cluster, PLAN_DTYPE_BF16, NULL));
  ck_assert (plan_cluster_assumes (cluster, PLAN_FACT_NIC_BANDWIDTH));
  ck_assert (plan_cluster_assumes (cluster, PLAN_FACT_NIC_LATENCY));
  ck_assert_double_eq_tol (cluster->nic_bytes_per_s, 0.625e9, 1); /* 10 Gbit/s for two */
  g_autofree char *text = plan_cluster_print (cluster);
  g_autoptr (PlanCluster) back = plan_cluster_parse (text, "back", &error);
  ck_assert_msg (back != NULL, "%s", error ? error->message : "");
  g_autofree char *again = plan_cluster_print (back);
  ck_assert_str_eq (text, again);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("probe");
  TCase *tcase = tcase_create ("probe");
  tcase_add_test (tcase, reads_cpuinfo);
  tcase_add_test (tcase, reads_rates_of_ports);
  tcase_add_test (tcase, counts_ports);
  tcase_add_test (tcase, reads_a_topology);
  tcase_add_test (tcase, describes_eight_gpus);
  tcase_add_test (tcase, takes_some_of_the_gpus);
  tcase_add_test (tcase, counts_gpus_of_ranks);
  tcase_add_test (tcase, leaves_other_gpus_out);
  tcase_add_loop_test (tcase, reports_what_nvml_refuses, 0, G_N_ELEMENTS (failures));
  tcase_add_test (tcase, no_driver_is_no_gpu);
  tcase_add_test (tcase, another_library_is_refused);
  tcase_add_test (tcase, names_of_drivers_are_shipped);
  tcase_add_test (tcase, processors_are_shared);
  tcase_add_test (tcase, ranks_have_threads);
  tcase_add_test (tcase, fingerprint_is_of_what_stays);
  tcase_add_test (tcase, this_machine);
  tcase_add_test (tcase, machines_like_this_one);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
