/* SPDX-License-Identifier: Apache-2.0 */
/* Topologies as NCCL and nvidia-smi write them: what is read from them, what is derived, and what
 * is refused. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/cluster/topology.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static PlanTopology *
parse (const char *text)
{
  g_autoptr (GError) error = NULL;
  PlanTopology *self = plan_topology_parse (text, "some/node a.xml", &error);
  ck_assert_msg (self != NULL, "%s", error ? error->message : "");
  return self;
}

static PlanTopology *
parse_file (const char *name)
{
  const char *top = g_getenv ("top_srcdir");
  g_autofree char *path = g_build_filename (top ? top : ".", "tests/golden/topology", name, NULL);
  g_autofree char *text = NULL;
  ck_assert (g_file_get_contents (path, &text, NULL, NULL));
  ck_assert (plan_topology_is (text));
  return parse (text);
}

static PlanCluster *
describe (const PlanTopology *topology, const char *device)
{
  g_autoptr (GError) error = NULL;
  PlanCluster *self = plan_topology_describe (topology, device, &error);
  ck_assert_msg (self != NULL, "%s", error ? error->message : "");
  return self;
}

static const PlanTopologyGpu *
gpu (const PlanTopology *self, guint i)
{
  return &g_array_index (self->gpus, PlanTopologyGpu, i);
}

START_TEST (reads_what_nccl_wrote)
{
  g_autoptr (PlanTopology) t = parse_file ("switched.xml");
  g_autoptr (PlanCluster) c = describe (t, NULL);
  ck_assert_str_eq (t->name, "node-a");
  ck_assert_uint_eq (t->gpus->len, 4);
  ck_assert_uint_eq (t->ports->len, 2);
  ck_assert_str_eq (g_array_index (t->ports, PlanTopologyPort, 1).name, "mlx5_1");
  for (guint g = 0; g < 4; g++)
    {
      ck_assert_str_eq (gpu (t, g)->device, "h100-80gb");
      ck_assert_int_eq (gpu (t, g)->links, 18);
      ck_assert (gpu (t, g)->has_switch);
      ck_assert_uint_eq (gpu (t, g)->numa, g / 2);
      ck_assert_uint_eq (gpu (t, g)->island, 0);
      for (guint p = 0; p < 2; p++)
        ck_assert_int_eq (plan_topology_path (t, g, p), p == g / 2 ? PLAN_PATH_PIX : PLAN_PATH_SYS);
    }
  ck_assert (c->nvlink_bytes_per_s == 450e9 && c->link_bytes_per_s == 450e9);
  ck_assert (c->nic_bytes_per_s == 25e9);
  ck_assert_int_eq (c->nic_sharers, 2);
  ck_assert_int_eq (c->far_devices, 0);
  ck_assert_int_eq (c->nvls, PLAN_ANSWER_YES);
}
END_TEST

/* The kernel names Amazon's ports by their place. */
START_TEST (tells_whose_ports_they_are)
{
  const char *top = g_getenv ("top_srcdir");
  g_autofree char *path
      = g_build_filename (top ? top : ".", "tests/golden/topology/switched.xml", NULL);
  g_autofree char *text = NULL;
  ck_assert (g_file_get_contents (path, &text, NULL, NULL));
  g_auto (GStrv) parts = g_strsplit (text, "mlx5_", -1);
  g_autofree char *amazons = g_strjoinv ("rdmap79s", parts);
  g_autoptr (PlanTopology) one = parse (text), other = parse (amazons);
  g_autoptr (PlanCluster) usual = describe (one, NULL), far = describe (other, NULL);
  ck_assert_int_eq (usual->nic_latency_ns, 5000);
  ck_assert_int_eq (far->nic_latency_ns, 40000);
  ck_assert (plan_cluster_assumes (far, PLAN_FACT_NIC_LATENCY));
  ck_assert_int_eq (usual->ibgda, PLAN_ANSWER_UNKNOWN);
  ck_assert_int_eq (far->ibgda, PLAN_ANSWER_NO);
}
END_TEST

/* Three of four L40S are far from the only port; two of these reach it from the other processor,
 * and share the bandwidth that NCCL assumes for Sapphire Rapids' link. */
START_TEST (finds_who_is_far)
{
  g_autoptr (PlanTopology) t = parse_file ("pcie.xml");
  g_autoptr (PlanCluster) c = describe (t, NULL);
  ck_assert_int_eq (plan_topology_path (t, 0, 0), PLAN_PATH_PIX);
  ck_assert_int_eq (plan_topology_path (t, 1, 0), PLAN_PATH_PHB);
  ck_assert_int_eq (plan_topology_path (t, 3, 0), PLAN_PATH_SYS);
  ck_assert_int_eq (c->far_devices, 3);
  ck_assert (c->far_bytes_per_s == 11e9);
  ck_assert_int_eq (c->nic_sharers, 4);
  ck_assert_int_eq (c->nvlink_domain, 0);
  ck_assert (c->link_bytes_per_s == 22e9 && c->host_link_bytes_per_s == 31.51e9);
}
END_TEST

START_TEST (reads_what_nvidia_smi_printed)
{
  g_autoptr (PlanTopology) t = parse_file ("table.txt");
  g_autoptr (PlanCluster) c = describe (t, "A100-80GB");
  g_autofree gint *chosen = plan_topology_assign (t);
  for (guint g = 0; g < 4; g++)
    {
      ck_assert_int_eq (gpu (t, g)->links, 12);
      ck_assert_int_eq (chosen[g], (gint)g / 2);
    }
  ck_assert_str_eq (g_array_index (t->ports, PlanTopologyPort, 2).name, "mlx5_2");
  ck_assert_int_eq (plan_topology_path (t, 0, 2), PLAN_PATH_NODE);
  ck_assert_int_eq (plan_topology_path (t, 2, 1), PLAN_PATH_PXB);
  ck_assert_str_eq (c->device_name, "a100-80gb");
  ck_assert (c->nvlink_bytes_per_s == 300e9);
  ck_assert_int_eq (c->nics_per_node, 3);
  ck_assert (!plan_cluster_knows (c, PLAN_FACT_NIC_RATE));
  ck_assert_int_eq (c->host_numa_nodes, 2);
}
END_TEST

#define CPU \
  "<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"175\" modelid=\"1\">"
#define GPU(bus, dev, inner) \
  "<pci busid=\"" bus "\" vendor=\"0x10de\" device=\"0x20b5\" link_speed=\"\" link_width=\"0\">" \
  "<gpu dev=\"" dev "\" sm=\"80\">" inner "</gpu></pci>"
#define TO(bus, class) "<nvlink target=\"" bus "\" count=\"12\"" class "/>"
#define NET(speed) \
  "<nic><net name=\"eth0\" dev=\"0\" speed=\"" speed "\" new=\"1\"><later/></net></nic>"

/* A virtual machine's topology: no bridges, no PCIe rates, pairs of bridged cards, a port that is
 * near no card. */
START_TEST (reads_a_virtual_machine)
{
  g_autoptr (PlanTopology) t
      = parse ("<!-- by hand -->\n<system version=\"1\">" CPU GPU (
          "a", "0", TO ("b", " tclass=\"0x030200\"")) GPU ("b", "1", TO ("a", "")) NET ("100000")
                   GPU ("c", "2", TO ("d", "")) GPU ("d", "3", TO ("c", "")) "</cpu></system>\n");
  g_autoptr (PlanCluster) c = describe (t, NULL);
  ck_assert_uint_eq (gpu (t, 1)->island, gpu (t, 0)->island);
  ck_assert_uint_ne (gpu (t, 2)->island, gpu (t, 0)->island);
  ck_assert_int_eq (c->nvlink_domain, 2);
  ck_assert_str_eq (c->device_name, "a100-pcie-80gb");
  ck_assert_int_eq (c->far_devices, 4);
  ck_assert_int_eq (plan_topology_path (t, 2, 0), PLAN_PATH_PHB);
  ck_assert (c->link_bytes_per_s == 31.5e9); /* the device's own PCIe */
  ck_assert (c->far_bytes_per_s == 31.5e9);
}
END_TEST

/* Two trays of one NVLink domain in one file; a GPU that is joined with its processor is near. */
START_TEST (reads_several_hosts)
{
#define TRAY(hash) \
  "<cpu host_hash=\"" hash "\" numaid=\"0\" arch=\"arm64\">" \
  "<pci busid=\"9:06\" vendor=\"0x10de\" device=\"0x2941\"><gpu dev=\"0\" sm=\"100\">" \
  "<nvlink target=\"f:ff\" count=\"18\" tclass=\"0x068000\"/><c2c bw=\"1\" " \
  "count=\"5\"/></gpu></pci>" \
  "<pci busid=\"2:00\"><nic><net name=\"mlx5_0\" speed=\"400000\"/></nic></pci></cpu>"
  g_autoptr (PlanTopology) t
      = parse ("<system version=\"1\">" TRAY ("0x1") TRAY ("0x2") "</system>");
  g_autoptr (PlanCluster) c = describe (t, NULL);
  ck_assert_int_eq (c->nodes, 2);
  ck_assert_int_eq (c->devices_per_node, 1);
  ck_assert_int_eq (c->nvlink_domain, 2);
  ck_assert_int_eq (c->nics_per_node, 1);
  ck_assert_int_eq (c->far_devices, 0);
  ck_assert (c->nvlink_bytes_per_s == 900e9);
  ck_assert_str_eq (c->device_name, "gb200");
}
END_TEST

/* Two hosts have GPUs at the same places on their buses; links lead to GPUs of the same host. */
START_TEST (tells_equal_places_of_hosts_apart)
{
#define PAIR(hash) \
  "<cpu host_hash=\"" hash "\" numaid=\"0\">" GPU ("a", "0", TO ("b", "")) \
      GPU ("b", "1", TO ("a", "")) "</cpu>"
  g_autoptr (PlanTopology) t = parse ("<system version=\"1\">" PAIR ("1") PAIR ("2") "</system>");
  g_autoptr (PlanCluster) c = describe (t, NULL);
  ck_assert_uint_eq (gpu (t, 0)->island, gpu (t, 1)->island);
  ck_assert_uint_eq (gpu (t, 2)->island, gpu (t, 3)->island);
  ck_assert_uint_ne (gpu (t, 0)->island, gpu (t, 2)->island);
  ck_assert_int_eq (c->nodes, 2);
  ck_assert_int_eq (c->nvlink_domain, 2);
}
END_TEST

/* Links between pairs of GPUs are each GPU's own, as in DGX-1; where pairs differ the least
 * counts. */
START_TEST (counts_links_without_switches)
{
  g_autoptr (PlanTopology) t = parse ("        GPU0    GPU1    GPU2    CPU Affinity\n"
                                      "GPU0     X      NV1     NV2     0-3\n"
                                      "GPU1    NV1      X      SYS     0-3\r\n"
                                      "GPU2    NV2     SYS      X      0-3\n");
  g_autoptr (PlanCluster) c = describe (t, "v100-32gb");
  ck_assert_int_eq (gpu (t, 0)->links, 3);
  ck_assert_int_eq (gpu (t, 1)->links, 1);
  ck_assert (!gpu (t, 0)->has_switch);
  ck_assert_int_eq (c->nvlink_domain, 3);
  ck_assert (c->nvlink_bytes_per_s == 25e9);
  ck_assert_str_eq (plan_cluster_source_of (c, PLAN_FACT_NVLINK_BANDWIDTH),
                    "nvidia-smi topo -m: 1 links where others have 3");
}
END_TEST

START_TEST (tells_its_formats)
{
  ck_assert (plan_topology_is (" \n<?xml version=\"1.0\"?>"));
  ck_assert (plan_topology_is ("\t\033[4mGPU0\tGPU1"));
  ck_assert (plan_topology_is ("\033[4m\tGPU0\tGPU1"));
  ck_assert (!plan_topology_is ("[mine]\ndevice=GPU0\n"));
  ck_assert (!plan_topology_is ("# <remark>\n[mine]\n"));
  ck_assert (!plan_topology_is (""));
}
END_TEST

/* Texts for every message. */
#define S "<system version=\"1\">\n"
#define T "\tGPU0\tNIC0\n"
static const struct
{
  const char *text, *message;
} broken[] = {
  { "<system version=\"1\">", "line 1: not XML: " },
  { "<system", "line 1: not XML: " },
  { S "</system>", "line 2: there is no <gpu> in it" },
  { "<system version=\"2\"/>", "line 1: version 2 of the format: NCCL's is 1" },
  { "<system/>", "line 1: <system> has no version" },
  { "<graphs version=\"1\"/>",
    "line 1: element 'graphs' cannot stand here: NCCL's topology begins" },
  { S "<pci busid=\"a\"/></system>", "line 2: element 'pci' cannot stand in <system>" },
  { S CPU "<gpu dev=\"0\"/></cpu></system>", "line 2: element 'gpu' cannot stand in <cpu>" },
  { S CPU "<fpga/></cpu></system>", "line 2: element 'fpga' cannot stand in <cpu>" },
  { S "<cpu/></system>", "line 2: <cpu> has no numaid" },
  { S "<cpu numaid=\"x\"/></system>", "line 2: numaid: 'x' is not a whole number" },
  { S CPU "<pci/></cpu></system>", "line 2: <pci> has no busid" },
  { S CPU "<pci busid=\"a\" link_speed=\"9 GT/s\"/></cpu></system>",
    "line 2: link_speed: '9 GT/s' is not a rate of PCIe, as in '32.0 GT/s PCIe'" },
  { S CPU "<pci busid=\"a\" link_width=\"65\"/></cpu></system>",
    "line 2: link_width: '65' is not a whole number of at most 64" },
  { S CPU "<pci busid=\"a\" vendor=\"0x1002\">\n<gpu dev=\"0\"/></pci></cpu></system>",
    "line 3: the GPU at a is of maker 0x1002: only NVIDIA's (0x10de) are known" },
  { S CPU "<pci busid=\"a\">\n<gpu/></pci></cpu></system>", "line 3: <gpu> has no dev" },
  { S CPU "<pci busid=\"a\">\n<gpu dev=\"0\" sm=\"9\"/></pci></cpu></system>",
    "line 3: sm: 9 is no compute capability such as 90" },
  { S CPU GPU ("a", "0", "") "\n" GPU ("a", "1", "") "</cpu></system>",
    "line 3: a second GPU at a" },
  { S CPU GPU ("a", "0", TO ("z", "")) "</cpu></system>",
    "line 2: target: 'z' is no GPU of this file, and no tclass says what it is" },
  { S CPU GPU ("a", "0", "<nvlink target=\"z\" count=\"0\"/>") "</cpu></system>",
    "line 2: count: an nvlink of no links" },
  { S CPU GPU ("a", "0", "<nvlink count=\"1\"/>") "</cpu></system>",
    "line 2: <nvlink> has no target" },
  { S CPU GPU ("a", "0", "") NET ("0") "</cpu></system>", "line 2: speed: a port of no Mbit/s" },
  { S CPU "<nic><net speed=\"1\"/></nic></cpu></system>", "line 2: <net> has no name" },
  { S CPU "word</cpu></system>", "line 2: text between elements: 'word'" },
  { T "GPU0\tX\n", "line 2: GPU0 has 1 cells for 2 columns" },
  { T "GPU1\tX\tSYS\n", "line 2: 'GPU1': expected the row of GPU0" },
  { T "GPU0\tX\tSOC\n",
    "line 2: GPU0 to NIC0: 'SOC' is none of X, NV and a number, PIX, PXB, PHB, NODE, SYS" },
  { T "GPU0\tX\tNV4\n", "line 2: GPU0 to NIC0: 'NV4', and NVLink joins GPUs" },
  { T "GPU0\tPIX\tPIX\n", "line 2: GPU0 to GPU0: 'PIX', and X is for a device and itself" },
  { T "GPU0\tX\tX\n", "line 2: GPU0 to NIC0: 'X', and X is for a device and itself" },
  { T "GPU0\tX\tPIX\nNIC0\tPXB\tX\n", "line 3: NIC0 to GPU0: 'PXB', and line 2 says otherwise" },
  { T "GPU0\tX\tPIX\n", "the table has 1 rows for 2 columns" },
  { "GPU0 GPU0\n", "line 1: column GPU0 is there twice" },
  { "GPU0 NIC0 GPU1\n", "line 1: GPU1 stands behind a column that is no GPU" },
};

START_TEST (refuses_what_is_broken)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanTopology) t = plan_topology_parse (broken[_i].text, "t", &error);
  ck_assert_msg (t == NULL, "accepted: %s", broken[_i].text);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (g_str_has_prefix (error->message, "t: ")
                     && strstr (error->message, broken[_i].message),
                 "'%s' does not hold '%s'", error->message, broken[_i].message);
}
END_TEST

static void
check_not_described (const char *text, const char *device, const char *message)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanTopology) t = parse (text);
  g_autoptr (PlanCluster) c = plan_topology_describe (t, device, &error);
  ck_assert (c == NULL);
  ck_assert_msg (strstr (error->message, message), "'%s' does not hold '%s'", error->message,
                 message);
}

START_TEST (refuses_what_is_no_cluster)
{
#define OTHER(id) \
  "<pci busid=\"" id "\" vendor=\"0x10de\" device=\"" id "\"><gpu dev=\"0\" sm=\"75\"/></pci>"
  check_not_described (S CPU OTHER ("0x1eb8") "</cpu></system>", NULL,
                       "PCI device 0x1eb8 is not a shipped device: write DEVICE@FILE");
  check_not_described (
      S CPU OTHER ("0x1eb8") OTHER ("0x2330") "</cpu></system>", NULL,
      "GPU 0 is of PCI device 0x1eb8 and GPU 1 of 0x2330: a cluster is of one kind");
  check_not_described ("GPU0\nGPU0 X\n", NULL,
                       "nvidia-smi topo -m does not name the GPUs: write "
                       "DEVICE@FILE, as in h100-80gb@FILE");
  check_not_described ("GPU0\nGPU0 X\n", "t4", "'t4' is not a shipped device: see show --gpus");
  check_not_described (S "<cpu host_hash=\"1\" numaid=\"0\">" OTHER ("0x2330")
                           OTHER ("0x2331") "</cpu><cpu host_hash=\"2\" numaid=\"0\">" OTHER (
                               "0x2330") "</cpu></system>",
                       "h100", "GPU 0 is of PCI device 0x2330 and GPU 1 of 0x2331");
  check_not_described ("<system version=\"1\"><cpu host_hash=\"1\" numaid=\"0\">" GPU ("a", "0", "")
                           GPU ("b", "1", "") "</cpu><cpu host_hash=\"2\" numaid=\"0\">" GPU (
                               "c", "0", "") "</cpu></system>",
                       NULL, "3 GPUs are not the same number on each of 2 hosts");
}
END_TEST

/* Ports are dealt out in turns: none gets a second user before all near ones have one. */
START_TEST (deals_ports_out)
{
  g_autoptr (PlanTopology) t = parse ("GPU0 GPU1 GPU2 N0 N1\n"
                                      "GPU0 X SYS SYS PIX PIX\n"
                                      "GPU1 SYS X SYS PIX PIX\n"
                                      "GPU2 SYS SYS X SYS SYS\n"
                                      "N0 PIX PIX SYS X PIX\n"
                                      "N1 PIX PIX SYS PIX X\n");
  g_autofree gint *chosen = plan_topology_assign (t);
  ck_assert_int_eq (chosen[0], 0);
  ck_assert_int_eq (chosen[1], 1);
  ck_assert_int_eq (chosen[2], 0);
}
END_TEST

/* What joins devices with NVLink is NVLink where its rate says so and the file says nothing else.
 */
START_TEST (fast_links_are_nvlink)
{
  static const struct
  {
    const char *facts;
    gint64 domain;
  } cases[] = {
    { "nvlink_bandwidth=450 GB/s\nlink_bandwidth=400 GB/s\n", 8 },
    { "nvlink_bandwidth=450 GB/s\nlink_bandwidth=400 GB/s\nhost_bandwidth=63 GB/s\n", 8 },
    { "nvlink_bandwidth=450 GB/s\nlink_bandwidth=400 GB/s\nnvlink_domain=1\n", 1 },
    { "nvlink_bandwidth=450 GB/s\nlink_bandwidth=64 GB/s\nhost_bandwidth=63 GB/s\n", 0 },
    { "nvlink_bandwidth=56 GB/s\nlink_bandwidth=32 GB/s\nhost_bandwidth=31.5 GB/s\n", 0 },
    { "link_bandwidth=400 GB/s\n", 0 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree char *text
          = g_strdup_printf ("[box]\ndevices_per_node=8\ndevice=x\n%s", cases[i].facts);
      g_autoptr (PlanCluster) cluster = plan_cluster_parse (text, "c.ini", NULL);
      ck_assert_ptr_nonnull (cluster);
      ck_assert_int_eq (cluster->nvlink_domain, cases[i].domain);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("topology");
  TCase *tcase = tcase_create ("topology");
  tcase_add_test (tcase, reads_what_nccl_wrote);
  tcase_add_test (tcase, tells_whose_ports_they_are);
  tcase_add_test (tcase, finds_who_is_far);
  tcase_add_test (tcase, reads_what_nvidia_smi_printed);
  tcase_add_test (tcase, reads_a_virtual_machine);
  tcase_add_test (tcase, reads_several_hosts);
  tcase_add_test (tcase, tells_equal_places_of_hosts_apart);
  tcase_add_test (tcase, counts_links_without_switches);
  tcase_add_test (tcase, tells_its_formats);
  tcase_add_loop_test (tcase, refuses_what_is_broken, 0, G_N_ELEMENTS (broken));
  tcase_add_test (tcase, refuses_what_is_no_cluster);
  tcase_add_test (tcase, deals_ports_out);
  tcase_add_test (tcase, fast_links_are_nvlink);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
