/* PlanFact: every figure that a cluster may state, listed once with its enum, key in the text,
 * type, member of PlanCluster, whether it is the device's or its node's, and meaning.
 *
 * Types, in base units: RATE (FLOP/s), BANDWIDTH (B/s) and FREQUENCY (Hz) are double; SIZE (B) is
 * guint64; LATENCY (ns), POWER (W), COUNT and VERSION (10 x major + minor) are gint64; ANSWER is
 * PlanAnswer. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_FACT_LIST(X) \
  X (PEAK_FP32, "peak_fp32", RATE, peak_flops[PLAN_DTYPE_FP32], DEVICE, "dense rate in fp32") \
  X (PEAK_TF32, "peak_tf32", RATE, peak_tf32_flops, DEVICE, "dense rate in tf32") \
  X (PEAK_BF16, "peak_bf16", RATE, peak_flops[PLAN_DTYPE_BF16], DEVICE, "dense rate in bf16") \
  X (PEAK_FP16, "peak_fp16", RATE, peak_flops[PLAN_DTYPE_FP16], DEVICE, "dense rate in fp16") \
  X (PEAK_E4M3, "peak_e4m3", RATE, peak_flops[PLAN_DTYPE_E4M3], DEVICE, "dense rate in e4m3") \
  X (PEAK_E5M2, "peak_e5m2", RATE, peak_flops[PLAN_DTYPE_E5M2], DEVICE, "dense rate in e5m2") \
  X (PEAK_MXFP8, "peak_mxfp8", RATE, peak_flops[PLAN_DTYPE_MXFP8], DEVICE, \
     "dense rate in fp8 with e8m0 block scales") \
  X (PEAK_NVFP4, "peak_nvfp4", RATE, peak_flops[PLAN_DTYPE_NVFP4], DEVICE, \
     "dense rate in e2m1 with block scales") \
  X (PEAK_INT8, "peak_int8", RATE, peak_int8_ops, DEVICE, "dense rate in int8") \
  X (MEMORY, "memory", SIZE, memory_bytes, DEVICE, "memory a process can use") \
  X (MEMORY_NOMINAL, "memory_nominal", SIZE, memory_nominal_bytes, DEVICE, "memory on the label") \
  X (MEMORY_BANDWIDTH, "memory_bandwidth", BANDWIDTH, memory_bytes_per_s, DEVICE, \
     "memory read or written") \
  X (L2, "l2", SIZE, l2_bytes, DEVICE, "level 2 cache") \
  X (SM_COUNT, "sm_count", COUNT, sm_count, DEVICE, "streaming multiprocessors") \
  X (THREADS, "threads", COUNT, threads, DEVICE, "threads of a rank on processors") \
  X (BOOST_CLOCK, "boost_clock", FREQUENCY, boost_clock_hz, DEVICE, \
     "clock that the peak rates are stated at") \
  X (POWER, "power", POWER, power_w, DEVICE, "power limit") \
  X (COMPUTE_CAPABILITY, "compute_capability", VERSION, compute_capability, DEVICE, \
     "CUDA compute capability") \
  X (ROCM, "rocm", ANSWER, rocm, DEVICE, "AMD's: programmed by ROCm, not by CUDA") \
  X (NVLINK_BANDWIDTH, "nvlink_bandwidth", BANDWIDTH, nvlink_bytes_per_s, DEVICE, \
     "all NVLinks of a device, one way") \
  X (PCIE_GENERATION, "pcie_generation", COUNT, pcie_generation, DEVICE, "PCI Express generation") \
  X (PCIE_LANES, "pcie_lanes", COUNT, pcie_lanes, DEVICE, "PCI Express lanes") \
  X (HOST_BANDWIDTH, "host_bandwidth", BANDWIDTH, host_link_bytes_per_s, DEVICE, \
     "device to host or back, one way") \
  X (LINK_BANDWIDTH, "link_bandwidth", BANDWIDTH, link_bytes_per_s, NODE, \
     "device to the devices it is linked with, one way") \
  X (LINK_LATENCY, "link_latency", LATENCY, link_latency_ns, NODE, "one hop over that link") \
  X (MESH_LINKS, "mesh_links", COUNT, mesh_links, NODE, \
     "links of a device, each to one other device alone, that share link_bandwidth") \
  X (NVLINK_DOMAIN, "nvlink_domain", COUNT, nvlink_domain, NODE, "devices that NVLink joins") \
  X (NVSWITCH, "nvswitch", ANSWER, nvswitch, NODE, "NVLink goes through switches") \
  X (NVLS, "nvls", ANSWER, nvls, NODE, "those switches can reduce and multicast") \
  X (NICS_PER_NODE, "nics_per_node", COUNT, nics_per_node, NODE, "network ports for training") \
  X (NIC_RATE, "nic_rate", BANDWIDTH, nic_rate_bytes_per_s, NODE, "one network port, one way") \
  X (NIC_BANDWIDTH, "nic_bandwidth", BANDWIDTH, nic_bytes_per_s, NODE, \
     "a device's share of the network ports, one way") \
  X (NIC_LATENCY, "nic_latency", LATENCY, nic_latency_ns, NODE, "one hop over the network") \
  X (NIC_SHARERS, "nic_sharers", COUNT, nic_sharers, NODE, \
     "devices on the fullest port, where each uses the nearest one") \
  X (FAR_DEVICES, "far_devices", COUNT, far_devices, NODE, \
     "devices whose nearest port is behind the host's processor") \
  X (FAR_BANDWIDTH, "far_bandwidth", BANDWIDTH, far_bytes_per_s, NODE, \
     "such a device to its port, one way") \
  X (RAILS, "rails", COUNT, rails, NODE, "network planes that join equal ports of all nodes") \
  X (SHARP, "sharp", ANSWER, sharp, NODE, "network switches can reduce") \
  X (IBGDA, "ibgda", ANSWER, ibgda, NODE, \
     "devices start transfers over the network by themselves") \
  X (HOST_MEMORY, "host_memory", SIZE, host_memory_bytes, NODE, "memory of the host") \
  X (HOST_MEMORY_BANDWIDTH, "host_memory_bandwidth", BANDWIDTH, host_memory_bytes_per_s, NODE, \
     "memory of the host, all sockets") \
  X (HOST_CORES, "host_cores", COUNT, host_cores, NODE, "processor cores of the host") \
  X (HOST_SOCKETS, "host_sockets", COUNT, host_sockets, NODE, "processors of the host") \
  X (HOST_NUMA_NODES, "host_numa_nodes", COUNT, host_numa_nodes, NODE, "NUMA nodes of the host") \
  X (HOST_CACHE, "host_cache", SIZE, host_cache_bytes, NODE, "last-level caches of the host")

typedef enum
{
#define X(id, key, type, member, scope, summary) PLAN_FACT_##id,
  PLAN_FACT_LIST (X)
#undef X
      PLAN_N_FACTS
} PlanFact;

/* The answer to a yes-or-no fact; unknown until somebody gives one. */
typedef enum
{
  PLAN_ANSWER_UNKNOWN,
  PLAN_ANSWER_NO,
  PLAN_ANSWER_YES,
} PlanAnswer;

const char *plan_fact_key (PlanFact fact);
const char *plan_fact_summary (PlanFact fact);

/* The base unit of a fact, such as "B/s"; empty for counts, versions and answers. */
const char *plan_fact_unit (PlanFact fact);

gboolean plan_fact_is_answer (PlanFact fact);
gboolean plan_fact_is_of_device (PlanFact fact);

/* Finds a fact by its key, or by a key that older versions wrote; FALSE when there is none. */
gboolean plan_fact_find (const char *key, PlanFact *out_fact);

G_END_DECLS
