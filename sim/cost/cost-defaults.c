/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter sets that are used until something is calibrated, with the source of every value.
 * Shares that come from measurements are of published, sustained figures; none was chosen to fit a
 * training run. */
#include "config.h"

#include "sim/cost/cost-params.h"

enum
{
  AMPERE, /* Ampere, Ada and Volta */
  HOPPER,
  BLACKWELL,
  CPU,
  N_MAIN,
  CDNA3 = N_MAIN, /* MI300X, 750 W */
  CDNA3_1000W,    /* MI325X */
  N_SETS
};

#define CURVES \
  "the catalogue's NCCL curves (all-gather, reduce-scatter and all-reduce on A100, H100, B200)"
#define TUNING "NCCL src/graph/tuning.cc"
#define SMS "Megatron-LM distributed_data_parallel_config.py"
#define LOOPS "assumed: of the right order for plain loops on one thread"

/* Values for Ampere, Hopper, Blackwell and CPU, and their source. */
static const struct
{
  double value[N_MAIN];
  const char *source;
} defaults[SIM_N_PARAMS] = {
  [SIM_PARAM_PRODUCT_FP32]
  = { { 0.80, 0.80, 0.80, 0.70 }, "assumed: CUDA cores sustain most of their rate" },
  [SIM_PARAM_PRODUCT_BF16]
  = { { 0.80, 0.77, 0.52, 0.70 },
      "A100: 235 of 312 TFLOP/s (SimuMax a100_pcie.json); H100: 600 of 835 over a layer "
      "(Transformer"
      "Engine gemm_profiling, H200 NVL), the best anybody saw 795 of 989 (stas00/ml-engineering); "
      "B200: "
      "1060 to 1430 of 2250 (SimuMax b200_bf16_ceperm.json), where power is the limit" },
  [SIM_PARAM_PRODUCT_FP8] = { { 0.70, 0.68, 0.46, 0.70 },
                              "H100: 1.90 x bf16 with factors quantised before (TransformerEngine "
                              "gemm_profiling, H200 NVL), "
                              "the best anybody saw 1403 of 1979 (stas00/ml-engineering); B200: "
                              "1.69 x bf16 with quantising "
                              "(the same, B300); Ada assumed" },
  [SIM_PARAM_PRODUCT_MXFP8] = { { 0.68, 0.68, 0.44, 0.70 },
                                "B200: 1.47 x bf16 with quantising (TransformerEngine "
                                "gemm_profiling, B300); others have none" },
  [SIM_PARAM_PRODUCT_NVFP4] = { { 0.68, 0.68, 0.32, 0.70 },
                                "B200: 2.18 x bf16 with quantising (TransformerEngine "
                                "gemm_profiling, B300); others have none" },
  [SIM_PARAM_PRODUCT_FILL]
  = { { 512, 512, 512, 0 }, "assumed: four stages of 64 elements in bf16 to fill and drain" },
  [SIM_PARAM_PRODUCT_TILE_2] = { { 0.92, 0.92, 0.92, 1 }, "assumed: operands per result grow" },
  [SIM_PARAM_PRODUCT_TILE_4] = { { 0.78, 0.78, 0.78, 1 }, "assumed: operands per result grow" },
  [SIM_PARAM_PRODUCT_TILE_8] = { { 0.58, 0.58, 0.58, 1 }, "assumed: operands per result grow" },
  [SIM_PARAM_PRODUCT_UNALIGNED]
  = { { 0.50, 0.50, 0.50, 1 }, "assumed: cuBLAS leaves its fastest kernels" },
  [SIM_PARAM_PRODUCT_MEMORY]
  = { { 0.85, 0.85, 0.85, 0.40 }, "assumed: a little below a device copy; CPU " LOOPS },
  [SIM_PARAM_PRODUCT_SUSTAINED] = { { 1, 1, 1, 1 }, "assumed: nothing is lost" },
  [SIM_PARAM_PRODUCT_NS]
  = { { 4000, 4000, 4000, 500 }, "assumed: the shortest products take 4 us" },
  [SIM_PARAM_ATTENTION] = { { 0.64, 0.716, 0.56, 0.20 },
                            "H200: cuDNN 9.19, causal, 64 heads of 128, 2048 to 32768 tokens: 484 "
                            "to 688 of 989 TFLOP/s, of "
                            "which this is the limit; A100, B200 and CPU assumed" },
  [SIM_PARAM_ATTENTION_HALF]
  = { { 500, 947, 947, 0 }, "the same curve, which it meets within 3 %; others assumed" },
  [SIM_PARAM_ATTENTION_BWD]
  = { { 0.56, 0.611, 0.46, 0.20 }, "the same, backward: 370 to 581 of 989; others assumed" },
  [SIM_PARAM_ATTENTION_BWD_HALF]
  = { { 700, 1294, 1294, 0 }, "the same curve, which it meets within 4 %; others assumed" },
  [SIM_PARAM_ATTENTION_HEAD] = { { 3, 81, 81, 0 },
                                 "Ampere: as attention.ampere.head; others assumed: heads of 64 "
                                 "reach 0.72 of the rate of 128" },
  [SIM_PARAM_ATTENTION_AMPERE]
  = { { 1, 0.447, 0.30, 1 },
      "flash-attention 2, 8192 tokens: H100, causal, heads of 128: 284 TFLOP/s (flash-attention PR "
      "#1791); B200, heads of 64: 343 (issue #1589); of what this set says of 8192" },
  [SIM_PARAM_ATTENTION_BWD_AMPERE]
  = { { 1, 0.55, 0.37, 1 }, "the same, backward: 287 and 329 TFLOP/s" },
  [SIM_PARAM_ATTENTION_AMPERE_HEAD]
  = { { 3, 3, 3, 0 },
      "flash-attention 2 on an H100, 8192 tokens, not causal: 310 and 299 TFLOP/s with heads of 64 "
      "(PR #2688), 370 and 290 with heads of 128 (PR #1791)" },
  [SIM_PARAM_ATTENTION_NS] = { { 5000, 5000, 5000, 500 }, "assumed" },
  [SIM_PARAM_DELTA]
  = { { 0.19, 0.139, 0.069, 0.20 },
      "FlashQLA's benchmark/benchmark_results (050c6bbe), fla 0.5.1 on H200 and GB200, 32768 "
      "tokens: "
      "0.902 and 1.016 ms with 8 heads, 3.331 and 2.943 ms with 64, of which these are the slope; "
      "Ampere assumed: as an H200 by memory bandwidth; CPU assumed: as attention" },
  [SIM_PARAM_DELTA_BWD]
  = { { 0.22, 0.161, 0.064, 0.20 },
      "the same, backward: 2.311 and 2.640 ms with 4 heads, 2.743 and 3.068 ms with 8; Ampere and "
      "CPU assumed likewise" },
  [SIM_PARAM_DELTA_CHUNK_NS] = { { 1080, 1080, 1450, 0 },
                                 "the same tables, forward: what 8 heads take beyond the slope, "
                                 "over 512 chunks; Ampere assumed" },
  [SIM_PARAM_DELTA_BWD_CHUNK_NS]
  = { { 3670, 3670, 4320, 0 }, "the same, backward, of 4 heads; Ampere assumed" },
  [SIM_PARAM_SSM] = { { 0.136, 0.136, 0.067, 0.20 },
                      "its largest kernel on H800: 134 of 989 TFLOP/s with states of 128 "
                      "(tile-ai/tilelang be9c08f6 "
                      "benchmark/mamba2); all else assumed: backward as forward, Blackwell's "
                      "processors as Hopper's" },
  [SIM_PARAM_TRAFFIC_COPY]
  = { { 0.90, 0.90, 0.90, 0.40 }, "device copy on H200: 4.3 of 4.8 TB/s; CPU " LOOPS },
  [SIM_PARAM_TRAFFIC_TRANSPOSE] = { { 0.75, 0.75, 0.75, 0.40 }, "assumed: through shared memory" },
  [SIM_PARAM_TRAFFIC_QUANTIZE] = { { 0.85, 0.85, 0.85, 0.40 }, "assumed: nearly a copy" },
  [SIM_PARAM_TRAFFIC_NORM] = { { 0.80, 0.80, 0.80, 0.40 }, "assumed: two passes, one cached" },
  [SIM_PARAM_TRAFFIC_NORM_BWD]
  = { { 0.65, 0.65, 0.65, 0.40 }, "assumed: sums over rows and over columns" },
  [SIM_PARAM_TRAFFIC_ACTIVATION] = { { 0.85, 0.85, 0.85, 0.40 }, "assumed: nearly a copy" },
  [SIM_PARAM_TRAFFIC_ROPE] = { { 0.70, 0.70, 0.70, 0.40 }, "assumed: short rows" },
  [SIM_PARAM_TRAFFIC_EMBED] = { { 0.60, 0.60, 0.60, 0.40 }, "assumed: scattered rows" },
  [SIM_PARAM_TRAFFIC_EMBED_BWD] = { { 0.50, 0.50, 0.50, 0.40 }, "assumed: sorted or atomic sums" },
  [SIM_PARAM_TRAFFIC_LOSS] = { { 0.85, 0.85, 0.85, 0.40 }, "assumed: nearly a copy" },
  [SIM_PARAM_TRAFFIC_REDUCTION] = { { 0.85, 0.85, 0.85, 0.40 }, "assumed: nearly a copy" },
  [SIM_PARAM_TRAFFIC_OPTIMIZER]
  = { { 0.80, 0.80, 0.80, 0.40 }, "assumed: several streams read and written" },
  [SIM_PARAM_LOSS_PASSES] = { { 3, 3, 3, 1 },
                              "counted in Megatron-LM's cross entropy, compiled: the cast, "
                              "maximum, exponentials and their sum "
                              "go over fp32 images" },
  [SIM_PARAM_LOSS_PASSES_UNFUSED] = { { 6, 6, 6, 1 }, "the same, one kernel per operation" },
  [SIM_PARAM_LOSS_PASSES_TE]
  = { { 5.7, 5.7, 5.7, 1 },
      "measured on a B200 (SimuMax's b200_bf16_ceperm.json): forward and backward pass of 4096 "
      "tokens take 3.3 ns per 1000 logits of bf16; its kernels would need 2.5 passes at a copy's "
      "rate" },
  [SIM_PARAM_KERNEL_NS]
  = { { 2000, 2000, 2000, 500 }, "assumed: the shortest kernels take 2 to 3 us; CPU " LOOPS },
  [SIM_PARAM_LL_NS]
  = { { 10000, 10000, 10000, 500 }, CURVES ", from 64 KiB; " TUNING " says 6.6 us" },
  [SIM_PARAM_LL128_NS]
  = { { 10000, 10000, 10000, 500 }, CURVES ", 1 to 2 MiB; " TUNING " says 14 us" },
  [SIM_PARAM_SIMPLE_NS] = { { 8400, 8400, 8400, 500 }, TUNING ", ring" },
  [SIM_PARAM_NET_NS]
  = { { 25000, 25000, 25000, 5000 }, CURVES ", on two nodes, 64 KiB: 40 to 59 us" },
  [SIM_PARAM_LL_HOP] = { { 0.30, 0.30, 0.30, 1 }, TUNING ": 0.6 us where a hop's order is 2 us" },
  [SIM_PARAM_LL128_HOP]
  = { { 0.75, 0.75, 0.75, 1 }, CURVES ", 1 to 2 MiB; " TUNING " says 1.9 us" },
  [SIM_PARAM_SIMPLE_HOP] = { { 1.70, 1.70, 1.70, 1 }, TUNING ": 3.4 us" },
  [SIM_PARAM_LL_NET_HOP]
  = { { 0.54, 0.54, 0.54, 1 }, TUNING ": 2.7 us where a hop's order is 5 us" },
  [SIM_PARAM_LL128_NET_HOP] = { { 0.80, 0.80, 0.80, 1 }, TUNING ": 4 us" },
  [SIM_PARAM_SIMPLE_NET_HOP] = { { 2.80, 2.80, 2.80, 1 }, TUNING ": 14 us" },
  [SIM_PARAM_LL_SHARE] = { { 0.25, 0.25, 0.25, 0 }, TUNING ": half of the bytes are flags" },
  [SIM_PARAM_LL128_SHARE] = { { 0.92, 0.92, 0.92, 0 }, TUNING ": 120 of 128 bytes" },
  [SIM_PARAM_RING_SHARE]
  = { { 0.77, 0.735, 0.74, 0.40 }, CURVES ": 235 of 300, 331 of 450, 672 of 900 GB/s; CPU " LOOPS },
  [SIM_PARAM_TREE_SHARE] = { { 0.68, 0.66, 0.66, 0 }, TUNING ": 0.9 of a ring's" },
  [SIM_PARAM_NET_SHARE] = { { 0.82, 0.82, 0.82, 0.80 },
                            "all-gather on 2 nodes: 328 (GCP A3 Ultra), 308 (Vultr B200), 376 "
                            "(verl on GKE) of 400 GB/s" },
  [SIM_PARAM_NVLS_SHARE]
  = { { 0.66, 0.66, 0.60, 0 }, "all-reduce of 8: 450 to 480 on H100, 845 GB/s of bus on B200" },
  [SIM_PARAM_NVLS_NS] = { { 40000, 40000, 40000, 0 }, "all-reduce of 8 on H100, 16 to 268 MB" },
  [SIM_PARAM_SYMMETRIC_SHARE] = { { 0.77, 0.735, 0.74, 0 },
                                  "as rings: Megatron-LM PR #5596, 8 to 134 MB gathered and "
                                  "reduced on 8 x H100, 307 to 329 of 450 GB/s beyond the start" },
  [SIM_PARAM_SYMMETRIC_NS]
  = { { 6000, 6000, 6000, 0 }, "the same curves; NCCL's own figure is 7.8 us" },
  [SIM_PARAM_ENGINE_SHARE] = { { 0.80, 0.80, 0.80, 0 }, "assumed: peer copies" },
  [SIM_PARAM_ENGINE_NS] = { { 15000, 15000, 15000, 0 }, "assumed: a copy per peer, and a barrier" },
  [SIM_PARAM_TIMED_ATTENTION] = { { 1, 1, 1, 1 }, "assumed: nothing is lost" },
  [SIM_PARAM_TIMED_TRAFFIC] = { { 1, 1, 1, 1 }, "assumed: nothing is lost" },
  [SIM_PARAM_TIMED_COLLECTIVE] = { { 1, 1, 1, 1 }, "assumed: nothing is lost" },
  [SIM_PARAM_LAUNCH] = { { 1, 1, 1, 1 }, "the stack's own figures" },
  [SIM_PARAM_RETAKE]
  = { { 15000, 15000, 15000, 0 },
      "PEFT PR #2894: without emptying the cache 250 steps take 45 s, with it 65 "
      "s where 12 GB are reserved on average, or 50 s every tenth step where "
      "19.3 GB are, 6.4 GB of them weights: 14 and 15 ms/GB" },
  [SIM_PARAM_SHARED_PROCESSORS]
  = { { 1, 1, 1, 0 }, "assumed: a kernel's blocks stay where they are until it ends" },
  [SIM_PARAM_SHARED_MEMORY] = { { 1, 1, 1, 0 }, "assumed: memory serves all alike" },
  [SIM_PARAM_SHARED_LINKS] = { { 1, 1, 1, 0 }, "assumed: links serve all alike" },
  [SIM_PARAM_RING_SMS] = { { 24, 24, 24, 0 }, "channels in the log of Megatron-LM PR #3067" },
  [SIM_PARAM_NET_SMS] = { { 16, 16, 16, 0 }, SMS },
  [SIM_PARAM_NVLS_SMS] = { { 16, 16, 16, 0 }, "assumed: NCCL's number of channels for it" },
  [SIM_PARAM_SYMMETRIC_SMS]
  = { { 9, 9, 13, 0 },
      "the fewest with which NCCL expects 97.5 % of its best (queryModel, "
      "src/sym_kernels.cc): 44 of 320 GB/s each, 55 of 600 on Blackwell; 9 in the "
      "log of Megatron-LM PR #3067" },
  [SIM_PARAM_MULTICAST_SMS]
  = { { 15, 15, 22, 0 },
      "the same, where each moves 0.55 times as much per member: 2 of 8 in "
      "the log of PyTorch PR #177111" },
  [SIM_PARAM_USER_BUFFER_SMS]
  = { { 16, 16, 16, 0 }, "TransformerEngine pytorch/module/base.py, initialize_ub: num_sm" },
  [SIM_PARAM_SHARP_SMS] = { { 6, 6, 6, 0 }, SMS },
  [SIM_PARAM_RAIL_GATHER_SMS] = { { 1, 1, 1, 0 }, SMS },
  [SIM_PARAM_RAIL_REDUCE_SMS] = { { 4, 4, 4, 0 }, SMS },
};

#define STREAM \
  "BabelStream's copy on MI300X, 4.11 of 5.3 TB/s (Azure AI-benchmarking-guide, ND MI300X v5)"
#define AS_COPIES STREAM "; to that as on Hopper, where it is assumed"
#define FLASH \
  "flash-attention 2 by Composable Kernel on MI300X, ROCm 6.3.2, 16384 keys, heads of 128: " \
  "medians of four batches 346 and 204 TFLOP/s (ROCm/flash-attention issue #142)"
#define GEMMS \
  "the share with which this model takes as long as AMD measured for ten GEMMs of DeepSeek-V3 on " \
  "MI325X, 616 TFLOP/s in bf16 and 1143 in fp8 (ROCm blog, typical attained FLOPs, 2026-10-06); " \
  "MI300X as much less as its best GEMM: 708 to 843, 1273 to 1519 (ROCm blog, measuring " \
  "max-achievable FLOPs, 2025-02-28)"
#define MESH \
  "RCCL's all-reduce of 8 MI300X: 319 of 448 GB/s of bus (ROCm blog, RCCL and xGMI, 2025-03-02)"
#define AS_HOPPER "assumed: as Hopper, nothing of AMD's is known"

/* Values for CDNA 3 at 750 and 1000 W, where any are known; the rest is Hopper's. */
static const struct
{
  SimParam param;
  double value[N_SETS - N_MAIN];
  const char *source;
} cdna3[] = {
  { SIM_PARAM_PRODUCT_BF16, { 0.465, 0.55 }, GEMMS },
  { SIM_PARAM_PRODUCT_FP8, { 0.467, 0.56 }, GEMMS },
  { SIM_PARAM_PRODUCT_MEMORY, { 0.73, 0.73 }, AS_COPIES },
  { SIM_PARAM_ATTENTION, { 0.28, 0.28 }, FLASH },
  { SIM_PARAM_ATTENTION_BWD, { 0.168, 0.168 }, FLASH },
  { SIM_PARAM_ATTENTION_HEAD,
    { 3, 3 },
    "heads of 64 reach about the same: 329 TFLOP/s at 8192 keys (Azure AI-benchmarking-guide, ND "
    "MI300X v5)" },
  { SIM_PARAM_ATTENTION_AMPERE, { 1, 1 }, "these kernels were measured" },
  { SIM_PARAM_ATTENTION_BWD_AMPERE, { 1, 1 }, "these kernels were measured" },
  { SIM_PARAM_TRAFFIC_COPY, { 0.775, 0.775 }, STREAM },
  { SIM_PARAM_TRAFFIC_TRANSPOSE, { 0.65, 0.65 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_QUANTIZE, { 0.73, 0.73 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_NORM, { 0.69, 0.69 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_NORM_BWD, { 0.56, 0.56 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_ACTIVATION, { 0.73, 0.73 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_ROPE, { 0.60, 0.60 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_EMBED, { 0.52, 0.52 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_EMBED_BWD, { 0.43, 0.43 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_LOSS, { 0.73, 0.73 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_REDUCTION, { 0.73, 0.73 }, AS_COPIES },
  { SIM_PARAM_TRAFFIC_OPTIMIZER, { 0.69, 0.69 }, AS_COPIES },
  { SIM_PARAM_RING_SHARE, { 0.71, 0.71 }, MESH },
  { SIM_PARAM_TREE_SHARE, { 0.64, 0.64 }, "assumed: 0.9 of a ring's, as NCCL's tuning table says" },
};

static const char *const ids[N_SETS]
    = { "default-ampere-5", "default-hopper-5", "default-blackwell-5",
        "default-cpu-5",    "default-cdna3-1",  "default-cdna3-1000w-1" };

static const char *const keys[] = {
#define X(id, key, unit, meaning) key,
  SIM_PARAM_LIST (X)
#undef X
};

static const char *const units[] = {
#define X(id, key, unit, meaning) unit,
  SIM_PARAM_LIST (X)
#undef X
};

static const char *const meanings[] = {
#define X(id, key, unit, meaning) meaning,
  SIM_PARAM_LIST (X)
#undef X
};

const char *
sim_param_key (SimParam param)
{
  return keys[param];
}

const char *
sim_param_unit (SimParam param)
{
  return units[param];
}

const char *
sim_param_meaning (SimParam param)
{
  return meanings[param];
}

const SimParams *
sim_params_get (guint i)
{
  static SimParams sets[N_SETS];
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      for (guint s = 0; s < N_SETS; s++)
        {
          sets[s].id = ids[s];
          for (SimParam p = 0; p < SIM_N_PARAMS; p++)
            sets[s].value[p] = defaults[p].value[s < N_MAIN ? s : HOPPER];
          for (guint known = 0; s >= N_MAIN && known < G_N_ELEMENTS (cdna3); known++)
            sets[s].value[cdna3[known].param] = cdna3[known].value[s - N_MAIN];
        }
      g_once_init_leave (&ready, 1);
    }
  return i < N_SETS ? &sets[i] : NULL;
}

#define MI300X_W 750

/* For a device of unknown generation the set is Hopper's. What GEMMs reach on CDNA 3 follows from
 * the power that the board may take. */
const SimParams *
sim_params_default (const PlanCluster *cluster)
{
  const gint64 capability = cluster->compute_capability;
  if (cluster->kind == PLAN_DEVICE_CPU)
    return sim_params_get (CPU);
  if (cluster->rocm == PLAN_ANSWER_YES)
    return sim_params_get (cluster->power_w > MI300X_W ? CDNA3_1000W : CDNA3);
  return sim_params_get (capability >= 100                     ? BLACKWELL
                         : capability >= 90 || capability == 0 ? HOPPER
                                                               : AMPERE);
}

const char *
sim_params_source (const SimParams *self, SimParam param)
{
  const gboolean is_of_cdna3
      = g_str_equal (self->id, ids[CDNA3]) || g_str_equal (self->id, ids[CDNA3_1000W]);
  for (guint i = 0; is_of_cdna3 && i < G_N_ELEMENTS (cdna3); i++)
    if (cdna3[i].param == param)
      return cdna3[i].source;
  return is_of_cdna3 ? AS_HOPPER : defaults[param].source;
}
