/* SimParams: what the cost model knows about a kind of device beyond its data sheet.
 *
 * Every parameter has a physical meaning, once, in the list below; a set holds a value for each.
 * The catalogue stores them by key, calibration fits them by index. */
#pragma once
#include "planner/cluster/cluster.h"
#include <glib.h>
G_BEGIN_DECLS

/* X (ID, "key", "unit", "meaning"). Shares are relative to the data sheet's rate. The parameters of
 * GEMMs by format, of traffic by class of op and of NCCL's three protocols are in the order of
 * their enums. */
#define SIM_PARAM_LIST(X) \
  X (PRODUCT_FP32, "product.fp32", "", "share of the dense rate, all processors busy, long k") \
  X (PRODUCT_BF16, "product.bf16", "", "the same in bf16 or fp16") \
  X (PRODUCT_FP8, "product.fp8", "", "the same in fp8 with one scale per tensor") \
  X (PRODUCT_MXFP8, "product.mxfp8", "", "the same in fp8 with block scales") \
  X (PRODUCT_NVFP4, "product.nvfp4", "", "the same in fp4 with block scales") \
  X (PRODUCT_FILL, "product.fill", "B", \
     "bytes of the inner dimension that take as long as starting a tile") \
  X (PRODUCT_TILE_2, "product.tile_2", "", "rate of a tile of 128 x 128 over that of 128 x 256") \
  X (PRODUCT_TILE_4, "product.tile_4", "", "rate of a tile of 64 x 128 over that of 128 x 256") \
  X (PRODUCT_TILE_8, "product.tile_8", "", "rate of a tile of 64 x 64 over that of 128 x 256") \
  X (PRODUCT_UNALIGNED, "product.unaligned", "", "rate where rows are not whole 16 bytes") \
  X (PRODUCT_MEMORY, "product.memory", "", "share of the memory bandwidth, when bound by it") \
  X (PRODUCT_SUSTAINED, "product.sustained", "", \
     "share of the rate of products timed alone that a long run keeps") \
  X (PRODUCT_NS, "product.ns", "ns", "start and end of a product") \
  X (ATTENTION, "attention", "", "share of the bf16 rate, forward, long sequences, head size 128") \
  X (ATTENTION_HALF, "attention.half", "", "keys at which half of that is reached") \
  X (ATTENTION_BWD, "attention_bwd", "", "share of the bf16 rate, backward") \
  X (ATTENTION_BWD_HALF, "attention_bwd.half", "", "keys at which half of that is reached") \
  X (ATTENTION_HEAD, "attention.head", "", \
     "head size at which half of the rate of a large one is " \
     "reached") \
  X (ATTENTION_AMPERE, "attention.ampere", "", \
     "share of the forward rate that kernels made for Ampere reach") \
  X (ATTENTION_BWD_AMPERE, "attention_bwd.ampere", "", \
     "share of the backward rate that kernels made for Ampere reach") \
  X (ATTENTION_AMPERE_HEAD, "attention.ampere.head", "", \
     "head size at which those reach half of the rate of a large one") \
  X (ATTENTION_NS, "attention.ns", "ns", "start and end of an attention kernel") \
  X (DELTA, "delta", "", "share of the bf16 rate of the gated delta rule, forward, heads of 128") \
  X (DELTA_BWD, "delta_bwd", "", "the same, backward") \
  X (DELTA_CHUNK_NS, "delta.chunk_ns", "ns", \
     "from one chunk's state to the next one's, forward, in which other heads go beside") \
  X (DELTA_BWD_CHUNK_NS, "delta_bwd.chunk_ns", "ns", "the same, backward") \
  X (SSM, "ssm", "", \
     "share of the bf16 rate of a state space's scan, both passes, beside its traffic") \
  X (TRAFFIC_COPY, "traffic.copy", "", "share of the memory bandwidth: copies, casts, sums") \
  X (TRAFFIC_TRANSPOSE, "traffic.transpose", "", "transposing copies, quantising ones too") \
  X (TRAFFIC_QUANTIZE, "traffic.quantize", "", "quantising copies without a transpose") \
  X (TRAFFIC_NORM, "traffic.norm", "", "norms, forward") \
  X (TRAFFIC_NORM_BWD, "traffic.norm_bwd", "", "norms, backward, with the weight's gradient") \
  X (TRAFFIC_ACTIVATION, "traffic.activation", "", "activation functions") \
  X (TRAFFIC_ROPE, "traffic.rope", "", "rotations of heads") \
  X (TRAFFIC_EMBED, "traffic.embed", "", "rows by index") \
  X (TRAFFIC_EMBED_BWD, "traffic.embed_bwd", "", "sums of rows by index") \
  X (TRAFFIC_LOSS, "traffic.loss", "", "cross entropy") \
  X (TRAFFIC_REDUCTION, "traffic.reduction", "", "sums over everything") \
  X (TRAFFIC_OPTIMIZER, "traffic.optimizer", "", "weight updates") \
  X (LOSS_PASSES, "loss.passes", "", "how often fused cross entropy moves its operands") \
  X (LOSS_PASSES_UNFUSED, "loss.passes_unfused", "", "the same, op by op") \
  X (LOSS_PASSES_TE, "loss.passes_te", "", "the same, Transformer Engine's") \
  X (KERNEL_NS, "kernel.ns", "ns", "shortest kernel") \
  X (LL_NS, "ring.ll.ns", "ns", "start and end of a ring or tree, protocol LL") \
  X (LL128_NS, "ring.ll128.ns", "ns", "the same, LL128") \
  X (SIMPLE_NS, "ring.simple.ns", "ns", "the same, Simple") \
  X (NET_NS, "net.ns", "ns", "added to every start when nodes are crossed") \
  X (LL_HOP, "ring.ll.hop", "", "latency of a hop inside a node over the link's, LL") \
  X (LL128_HOP, "ring.ll128.hop", "", "the same, LL128") \
  X (SIMPLE_HOP, "ring.simple.hop", "", "the same, Simple") \
  X (LL_NET_HOP, "ring.ll.net_hop", "", "latency of a hop between nodes over the network's, LL") \
  X (LL128_NET_HOP, "ring.ll128.net_hop", "", "the same, LL128") \
  X (SIMPLE_NET_HOP, "ring.simple.net_hop", "", "the same, Simple") \
  X (LL_SHARE, "ring.ll.share", "", "bandwidth of LL to that of Simple") \
  X (LL128_SHARE, "ring.ll128.share", "", "bandwidth of LL128 to that of Simple") \
  X (RING_SHARE, "ring.share", "", "share of the link that rings reach") \
  X (TREE_SHARE, "tree.share", "", "share of the link that trees reach") \
  X (NET_SHARE, "net.share", "", "share of the network ports that rings and trees reach") \
  X (NVLS_SHARE, "nvls.share", "", "share of the link when switches reduce") \
  X (NVLS_NS, "nvls.ns", "ns", "start and end when switches reduce") \
  X (SYMMETRIC_SHARE, "symmetric.share", "", "share of the link, kernels on symmetric memory") \
  X (SYMMETRIC_NS, "symmetric.ns", "ns", "start and end of such a kernel") \
  X (ENGINE_SHARE, "engine.share", "", "share of the link, copy engines") \
  X (ENGINE_NS, "engine.ns", "ns", "start and end of a gather by copy engines") \
  X (TIMED_ATTENTION, "timed.attention", "", \
     "share of the rate of attention timed alone that a step keeps") \
  X (TIMED_TRAFFIC, "timed.traffic", "", "the same of ops bound by memory") \
  X (TIMED_COLLECTIVE, "timed.collective", "", "the same of collectives") \
  X (LAUNCH, "launch", "", "factor on what the stack says that issuing an op costs the host") \
  X (RETAKE, "retake", "ns/MiB", "memory that is given back to the device and taken again") \
  X (SHARED_PROCESSORS, "shared.processors", "", \
     "share of the processors a collective keeps that products beside it miss") \
  X (SHARED_MEMORY, "shared.memory", "", "share of an op's memory traffic that slows other ops") \
  X (SHARED_LINKS, "shared.links", "", \
     "share of a collective's time on links that slows other ops") \
  X (RING_SMS, "ring.sms", "", "processors a ring inside a node keeps busy") \
  X (NET_SMS, "net.sms", "", "processors a collective between nodes keeps busy") \
  X (NVLS_SMS, "nvls.sms", "", "processors a reduction by switches keeps busy") \
  X (SYMMETRIC_SMS, "symmetric.sms", "", "processors a kernel on symmetric memory keeps busy") \
  X (MULTICAST_SMS, "multicast.sms", "", \
     "the same times the members, where switches multicast and reduce") \
  X (USER_BUFFER_SMS, "user_buffer.sms", "", \
     "processors a kernel on a layer's user buffers keeps busy") \
  X (SHARP_SMS, "sharp.sms", "", \
     "processors a collective keeps busy that NVLink and network switches reduce") \
  X (RAIL_GATHER_SMS, "rail.gather_sms", "", "registered gather with one member per node") \
  X (RAIL_REDUCE_SMS, "rail.reduce_sms", "", "registered reduction with one member per node")

typedef enum
{
#define X(id, key, unit, meaning) SIM_PARAM_##id,
  SIM_PARAM_LIST (X)
#undef X
      SIM_N_PARAMS
} SimParam;

typedef struct
{
  const char *id;
  gboolean is_fitted; /* the values were fitted to measurements of this program; else they are
                         published figures */
  double value[SIM_N_PARAMS];
} SimParams;

const char *sim_param_key (SimParam param);
const char *sim_param_unit (SimParam param);
const char *sim_param_meaning (SimParam param);

/* The set for a cluster's devices, by their generation, when nothing was calibrated. */
const SimParams *sim_params_default (const PlanCluster *cluster);

/* The sets in a fixed order; NULL past the last. */
const SimParams *sim_params_get (guint i);

/* The source of a value of a shipped set; "assumed: ..." where nobody published one. */
const char *sim_params_source (const SimParams *self, SimParam param);

G_END_DECLS
