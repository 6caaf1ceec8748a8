/* Every kind of op, once. The enum, names, parser, printer, checks and both kernel tables are made
 * from this list.
 *
 * PLAN_OP_LIST (X): X (ID, "name", CLASS, WORK, "operands", "dims", "summary")
 *   CLASS     MEMORY      alloc, free and touch; take no time on a stream
 *             HOST        runs on the host
 *             COMPUTE     one kernel on one stream
 *             COLLECTIVE  all ranks of a group
 *   WORK      what its time is counted as (PLAN_WORK_LIST)
 *   operands  "name:access ...", access r reads, w writes, u both, m the buffer itself,
 *             s scratch (contents mean nothing before or after); R and W may be absent
 *   dims      names of the integers, all required
 *
 * Matrices are row-major. `rows` counts tokens of this rank's micro batch. A gemm computes
 * out[m,n] = a * b with layout 0: a[m,k] b[k,n], 1: a[m,k] b[n,k], 2: a[k,m] b[k,n]. In fp8, `col`
 * is the transposed copy: what products over the other dimension read; that of a part of parameters
 * lies as the part does, and products turn it. A unit has `parts` magnitudes. What has a `scale` is
 * multiplied by it and rounded, and `amax` raised to the largest of it
 * (planner/schedule/quantizers.h). `kind` of an activation is a PlanActivation, `keys` of attention
 * the tokens that each query may see at most; with `kv` those are other ranks' tokens, and the
 * gradient is that of the queries alone. In latent attention queries and keys have `nope` columns
 * of their own and `rope` turned by position, the latter the same for all heads' keys.
 *
 * Experts: each token goes to `topk` of `experts`. A grouped gemm is one product per group: with
 * layout 1 and 0 its m rows are shared out over the groups and each has its own b, with layout 2
 * its k rows are, and each has its own out. Rows are moved by a map of `entries` numbers. */
#pragma once

/* clang-format off */
#define PLAN_OP_LIST(X)                                                                                                                               \
  X (ALLOC, "alloc", MEMORY, OTHER, "buf:m", "", "take memory")                                                                                              \
  X (FREE, "free", MEMORY, OTHER, "buf:m", "", "give memory back once the stream gets here")                                                                 \
  X (TOUCH, "touch", MEMORY, OTHER, "buf:m", "", "the framework takes that memory when it first gets here, whatever was said before")                                \
  X (INIT, "init", HOST, OTHER, "out:w", "bucket shard shards", "initial main weights of one shard of a bucket of this unit")                                \
  X (LOAD, "load", HOST, OTHER, "tokens:w targets:w", "rows", "the next micro batch")                                                                        \
  X (SYNC, "sync", HOST, OTHER, "", "", "the host waits for this op's events")                                                                               \
  X (WAIT, "wait", HOST, OTHER, "", "", "a stream waits for this op's events")                                                                               \
  X (PREPARE, "prepare", HOST, OTHER, "", "tensors", "the host's own work on parameters for the optimizer")                                                      \
  X (ZERO, "zero", COMPUTE, COPY, "out:w", "count", "fill with zeros")                                                                                      \
  X (CAST, "cast", COMPUTE, COPY, "out:w in:r", "count", "copy between number formats, rounded once")                                                       \
  X (QUANTIZE, "quantize", COMPUTE, QUANTISE, "out:w col:W in:r scale:R amax:U", "rows cols", "to a scaled format, with its scales; and transposed")                           \
  X (PARAM_AMAX, "param_amax", COMPUTE, QUANTISE, "amax:u in:r", "count parts", "largest magnitudes of each of a unit's parameters in this rank's part of them") \
  X (PARAM_QUANTIZE, "param_quantize", COMPUTE, QUANTISE, "out:w col:W in:r amax:R scales:W site_scales:R site_amax:U", "count parts", "this rank's part of a unit's parameters to a scaled format, each by its own magnitudes; and by columns") \
  X (INIT_SCALES, "init_scales", HOST, OTHER, "scales:w history:W", "count length", "scales of sites, and the magnitudes of their last steps: a run's that is taken up, else 1") \
  X (RESCALE, "rescale", COMPUTE, QUANTISE, "scales:u history:u amax:u", "count length", "next scales of sites, by the largest magnitudes of their last `length` steps; `amax` begins afresh") \
  X (TRANSPOSE, "transpose", COMPUTE, QUANTISE, "out:w in:r", "rows cols", "out[cols, rows]")                                                                   \
  X (ACCUMULATE, "accumulate", COMPUTE, COPY, "out:u in:r", "count", "out += in, summed in the wider format")                                               \
  X (SUM_PARTS, "sum_parts", COMPUTE, COPY, "out:w in:r", "count parts", "out = the sum of `parts` runs of `count` elements, in fp32, rounded once") \
  X (COPY, "copy", COMPUTE, COPY, "out:w in:r", "count", "between the device and the host, rounded where formats differ") \
  X (ADD, "add", COMPUTE, ELEMENT, "out:w a:r b:r", "count", "out = a + b")                                                                                    \
  X (DROPOUT, "dropout", COMPUTE, ELEMENT, "out:w mask:w in:r", "count", "zeroes some elements at random; a byte of the mask says which stay") \
  X (DROPOUT_ADD, "dropout_add", COMPUTE, ELEMENT, "out:w mask:w a:r b:r", "count", "out = a + dropout (b)") \
  X (DROPOUT_BWD, "dropout_bwd", COMPUTE, ELEMENT, "din:w dout:r mask:r", "count", "gradient of what was dropped from") \
  X (SCALE, "scale", COMPUTE, COPY, "buf:u", "count", "times a constant: of gradients, 1 / the data-parallel size")                                                                                   \
  X (SOFTCAP, "softcap", COMPUTE, ELEMENT, "buf:u", "count", "cap * tanh (x / cap), in place")                                                                 \
  X (SOFTCAP_BWD, "softcap_bwd", COMPUTE, ELEMENT, "grad:u out:r", "count", "its gradient, in place")                                                          \
  X (POSITIONS, "positions", COMPUTE, ELEMENT, "out:u table:r", "rows cols seq", "adds each position's row of the table")                                      \
  X (POSITIONS_BWD, "positions_bwd", COMPUTE, ELEMENT, "dtable:w dout:r", "rows cols seq", "gradient of the table's first seq rows")                           \
  X (EMBED, "embed", COMPUTE, ELEMENT, "out:w table:r tokens:r", "rows cols vocab", "look token rows up")                                                      \
  X (EMBED_BWD, "embed_bwd", COMPUTE, ELEMENT, "dtable:w dout:r tokens:r work:s", "rows cols vocab", "gradient of the table; rows nobody used become 0")       \
  X (RMSNORM, "rmsnorm", COMPUTE, ELEMENT, "out:w rstd:w in:r weight:r scale:R amax:U", "rows cols", "root-mean-square norm")                                                 \
  X (RMSNORM_BWD, "rmsnorm_bwd", COMPUTE, ELEMENT, "din:w dweight:w dout:r in:r weight:r rstd:r work:s add:R", "rows cols", "its gradients; `add` is added to din, rounded before and after")                         \
  X (LAYERNORM, "layernorm", COMPUTE, ELEMENT, "out:w stats:w in:r weight:r bias:R scale:R amax:U", "rows cols", "norm by mean and variance")                                 \
  X (LAYERNORM_BWD, "layernorm_bwd", COMPUTE, ELEMENT, "din:w dweight:w dbias:W dout:r in:r weight:r stats:r add:R work:s", "rows cols", "the same")            \
  X (ADD_RMSNORM, "add_rmsnorm", COMPUTE, ELEMENT, "out:w rstd:w sum:w a:r b:r weight:r scale:R amax:U", "rows cols", "sum = a + b, rounded, and its root-mean-square norm") \
  X (ADD_LAYERNORM, "add_layernorm", COMPUTE, ELEMENT, "out:w stats:w sum:w a:r b:r weight:r bias:R scale:R amax:U", "rows cols", "sum = a + b, rounded, and its norm by mean and variance") \
  X (HEAD_NORM, "head_norm", COMPUTE, ELEMENT, "out:w rstd:w in:r q:r k:r", "rows heads kv_heads head_dim", "root-mean-square norm of every head of q and k; v is copied") \
  X (HEAD_NORM_BWD, "head_norm_bwd", COMPUTE, ELEMENT, "din:w dq:w dk:w dout:r in:r q:r k:r rstd:r work:s", "rows heads kv_heads head_dim", "its gradients")   \
  X (GEMM, "gemm", COMPUTE, GEMM, "out:w a:r b:r bias:R work:s", "m n k layout", "matrix product")                                                          \
  X (GEMM_ADD, "gemm_add", COMPUTE, GEMM, "out:u a:r b:r work:s", "m n k layout", "out += matrix product, rounded once")                                                         \
  X (BIAS_BWD, "bias_bwd", COMPUTE, ELEMENT, "dbias:w dout:r", "rows cols", "sums of columns")                                                                 \
  X (REPEAT_HEADS, "repeat_heads", COMPUTE, ELEMENT, "out:w in:r", "rows heads kv_heads head_dim", "q, then k and v once for each query head") \
  X (REPEAT_HEADS_BWD, "repeat_heads_bwd", COMPUTE, ELEMENT, "din:w dout:r", "rows heads kv_heads head_dim", "its gradient") \
  X (ROPE, "rope", COMPUTE, ELEMENT, "qkv:u", "rows seq heads kv_heads head_dim inverse", "rotate q and k by position, in place")                              \
  X (ATTENTION, "attention", COMPUTE, ATTENTION, "out:w lse:w qkv:r work:s kv:R", "batch seq heads kv_heads head_dim keys", "causal attention")                       \
  X (ATTENTION_BWD, "attention_bwd", COMPUTE, ATTENTION, "dqkv:w dout:r out:r lse:r qkv:r work:s kv:R dkv:W", "batch seq heads kv_heads head_dim keys", "its gradients")    \
  X (ATTENTION_JOIN, "attention_join", COMPUTE, ATTENTION, "out:u lse:u part:r part_lse:r", "rows heads head_dim", "joins attention over some tokens with that over others") \
  X (SWIGLU, "swiglu", COMPUTE, ELEMENT, "out:w in:r", "rows cols", "silu(gate) * up; in is [rows, 2 cols]")                                                   \
  X (SWIGLU_BWD, "swiglu_bwd", COMPUTE, ELEMENT, "din:w dout:r in:r", "rows cols", "its gradient")                                                             \
  X (ACTIVATE, "activate", COMPUTE, ELEMENT, "out:w in:r", "rows cols kind gated", "activation, times the other half of in where gated")                       \
  X (ACTIVATE_BWD, "activate_bwd", COMPUTE, ELEMENT, "din:w dout:r in:r", "rows cols kind gated", "its gradient")                                              \
  X (LATENT_ROPE, "latent_rope", COMPUTE, ELEMENT, "q:u k:w v:w kv:r down:r", "rows heads nope rope v_dim rank", "queries turned by position; keys and values of all heads from the latent ones") \
  X (LATENT_ROPE_BWD, "latent_rope_bwd", COMPUTE, ELEMENT, "dq:u dkv:w ddown:w dk:r dv:r", "rows heads nope rope v_dim rank", "its gradients") \
  X (LATENT_ATTENTION, "latent_attention", COMPUTE, ATTENTION, "out:w lse:w q:r k:r v:r", "batch seq heads head_dim v_dim keys", "causal attention whose values have another size than its keys") \
  X (LATENT_ATTENTION_BWD, "latent_attention_bwd", COMPUTE, ATTENTION, "dq:w dk:w dv:w dout:r out:r lse:r q:r k:r v:r", "batch seq heads head_dim v_dim keys", "its gradients") \
  X (ROUTE, "route", COMPUTE, ELEMENT, "probs:w saved:w map:w logits:r", "rows experts topk", "the experts of each token, and their shares") \
  X (ROUTE_BWD, "route_bwd", COMPUTE, ELEMENT, "dlogits:w dprobs:r saved:r map:r", "rows experts topk", "its gradient") \
  X (ROW_MAP, "row_map", COMPUTE, ELEMENT, "map:w routes:R", "rows experts entries", "where each row goes when rows are sorted by expert") \
  X (PERMUTE, "permute", COMPUTE, COPY, "out:w in:r map:r row_probs:W probs:R", "rows out_rows cols entries", "rows sorted by expert, once for each expert of a row; and the experts' shares of them") \
  X (UNPERMUTE, "unpermute", COMPUTE, COPY, "out:w in:r map:r dprobs:W row_dprobs:R", "rows in_rows cols entries", "rows where they were, those of one added up") \
  X (GROUPED_GEMM, "grouped_gemm", COMPUTE, GEMM, "out:w a:r b:r", "m n k layout groups", "a matrix product for each expert") \
  X (GROUPED_GEMM_ADD, "grouped_gemm_add", COMPUTE, GEMM, "out:u a:r b:r", "m n k layout groups", "out += a matrix product for each expert") \
  X (EXPERT_ACTIVATE, "expert_activate", COMPUTE, ELEMENT, "out:w in:r probs:r", "rows cols kind gated", "activation, times the expert's share of each row") \
  X (EXPERT_ACTIVATE_BWD, "expert_activate_bwd", COMPUTE, ELEMENT, "din:w dprobs:w dout:r in:r probs:r", "rows cols kind gated", "its gradients") \
  X (ROW_STAT, "row_stat", COMPUTE, LOSS, "out:w in:r", "rows cols", "a number per row of a part of the logits: its maximum, its sum or its target's")      \
  X (CROSS_ENTROPY, "cross_entropy", COMPUTE, LOSS, "loss:u prob:w logits:r targets:r", "rows cols", "adds every token's loss to the exact sum, keeps the softmax") \
  X (CROSS_ENTROPY_BWD, "cross_entropy_bwd", COMPUTE, LOSS, "dlogits:w prob:r targets:r", "rows cols", "gradient of the summed loss")                       \
  X (LOSS_GRAD, "loss_grad", COMPUTE, LOSS, "loss:u logits:u targets:r work:s", "rows cols", "adds every token's loss to the exact sum; its logits become their gradient") \
  X (NORM_SQ, "norm_sq", COMPUTE, OPTIMIZER, "sum:u in:r", "count", "adds the squares to the exact sum")                                                         \
  X (CLIP, "clip", COMPUTE, OPTIMIZER, "coef:w sums:r", "ranks norms tokens", "gradient scale: 1 / tokens and the clipping factor, from all ranks' exact sums")  \
  X (ADAMW, "adamw", COMPUTE, OPTIMIZER, "main:u exp_avg:u exp_avg_sq:u grad:r coef:r", "count", "one AdamW update")                                             \
  X (ADAMW_HOST, "adamw_host", COMPUTE, OPTIMIZER, "main:u exp_avg:u exp_avg_sq:u grad:r coef:r", "count", "one AdamW update, by the host") \
  X (SGD, "sgd", COMPUTE, OPTIMIZER, "main:u momentum:u grad:r coef:r", "count", "one SGD update with momentum")                                                 \
  X (ALL_GATHER, "all_gather", COLLECTIVE, OTHER, "out:w in:r", "count", "every rank's `count` elements, in rank order")                                     \
  X (REDUCE_SCATTER, "reduce_scatter", COLLECTIVE, OTHER, "out:w in:r", "count", "this rank's `count` elements of the sum over ranks")                       \
  X (ALL_TO_ALL, "all_to_all", COLLECTIVE, OTHER, "out:w in:r", "count", "to each rank its `count` elements; from each rank this one's") \
  X (ALL_REDUCE, "all_reduce", COLLECTIVE, OTHER, "buf:u", "count", "sum over ranks, everywhere") \
  X (ALL_REDUCE_MAX, "all_reduce_max", COLLECTIVE, OTHER, "buf:u", "count", "largest over ranks, everywhere; of magnitudes") \
  X (EXCHANGE, "exchange", COLLECTIVE, OTHER, "out:w in:r", "count", "this rank's elements to the next, the one before's here")
/* clang-format on */

/* What a device's time goes into: X (ID, "key", "name"). */
#define PLAN_WORK_LIST(X) \
  X (GEMM, "gemm", "GEMMs") \
  X (ATTENTION, "attention", "attention") \
  X (ELEMENT, "element_wise", "norms and element-wise") \
  X (LOSS, "loss", "loss") \
  X (OPTIMIZER, "optimizer", "optimizer") \
  X (QUANTISE, "quantise", "quantise and transpose") \
  X (COPY, "copy", "copies and sums") \
  X (OTHER, "other", "other")

/* Streams of one rank: X (ID, "name", "summary"). Ops of one stream run in issue order. */
#define PLAN_STREAM_LIST(X) \
  X (HOST, "host", "the process that issues everything") \
  X (COMPUTE, "compute", "kernels") \
  X (GATHER, "gather", "parameter all-gathers") \
  X (REDUCE, "reduce", "gradient reductions") \
  X (OUTER_GATHER, "outer_gather", "weight shards, between replicas") \
  X (OUTER_REDUCE, "outer_reduce", "gradient shards, between replicas") \
  X (TENSOR, "tensor", "activations, within a tensor-parallel or an expert-parallel group") \
  X (CONTEXT, "context", "keys and values, within a context-parallel group") \
  X (COPY, "copy", "between the device and the host")

/* What memory of the device is for: X (ID, "name", "summary"). */
#define PLAN_CATEGORY_LIST(X) \
  X (WEIGHTS, "weights", "compute weights at rest") \
  X (GATHERED, "gathered", "weights gathered for use") \
  X (DERIVED, "derived", "transposed and quantised copies of weights, scales") \
  X (MAIN_PARAMS, "main_params", "weights the optimizer updates") \
  X (MAIN_GRADS, "main_grads", "accumulated gradients") \
  X (OPTIMIZER, "optimizer", "moments, and what the optimizer takes while it works") \
  X (GRAD_BUCKETS, "grad_buckets", "gradients on their way to the reduction") \
  X (ACTIVATIONS, "activations", "saved for the backward pass, and its own gradients") \
  X (LOSS, "loss", "logits and softmax") \
  X (WORKSPACE, "workspace", "scratch of kernels, small state and batches")
