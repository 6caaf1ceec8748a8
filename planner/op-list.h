/* Every kind of op, once. The enum, names, parser, printer, checks and both kernel tables are made
 * from this list.
 *
 * PLAN_OP_LIST (X): X (ID, "name", CLASS, "operands", "dims", "summary")
 *   CLASS     MEMORY      alloc and free; take no time on a stream
 *             HOST        runs on the host
 *             COMPUTE     one kernel on one stream
 *             COLLECTIVE  all ranks of a group
 *   operands  "name:access ...", access r reads, w writes, u both, m the buffer itself,
 *             s scratch (contents mean nothing before or after)
 *   dims      names of the integers, all required
 *
 * Matrices are row-major. `rows` counts tokens of this rank's micro batch. A gemm computes
 * out[m,n] = a * b with layout 0: a[m,k] b[k,n], 1: a[m,k] b[n,k], 2: a[k,m] b[k,n]. */
#pragma once

/* clang-format off */
#define PLAN_OP_LIST(X)                                                                                                              \
  X (ALLOC, "alloc", MEMORY, "buf:m", "", "take memory")                                                                             \
  X (FREE, "free", MEMORY, "buf:m", "", "give memory back once the stream gets here")                                                \
  X (INIT, "init", HOST, "out:w", "bucket shard shards", "initial main weights of one shard of a bucket of this unit")                     \
  X (LOAD, "load", HOST, "tokens:w targets:w", "rows", "the next micro batch")                                                       \
  X (SYNC, "sync", HOST, "", "", "the host waits for this op's events")                                                              \
  X (ZERO, "zero", COMPUTE, "out:w", "count", "fill with zeros")                                                                     \
  X (CAST, "cast", COMPUTE, "out:w in:r", "count", "copy between number formats, rounded once")                                      \
  X (ACCUMULATE, "accumulate", COMPUTE, "out:u in:r", "count", "out += in, summed in the wider format")                              \
  X (ADD, "add", COMPUTE, "out:w a:r b:r", "count", "out = a + b")                                                                   \
  X (EMBED, "embed", COMPUTE, "out:w table:r tokens:r", "rows cols vocab", "look token rows up")                                     \
  X (EMBED_BWD, "embed_bwd", COMPUTE, "dtable:w dout:r tokens:r work:s", "rows cols vocab", "gradient of the table; rows nobody used become 0") \
  X (RMSNORM, "rmsnorm", COMPUTE, "out:w rstd:w in:r weight:r", "rows cols", "root-mean-square norm")                                \
  X (RMSNORM_BWD, "rmsnorm_bwd", COMPUTE, "din:w dweight:w dout:r in:r weight:r rstd:r work:s", "rows cols", "its gradients")        \
  X (GEMM, "gemm", COMPUTE, "out:w a:r b:r work:s", "m n k layout", "matrix product")                                                \
  X (ROPE, "rope", COMPUTE, "qkv:u", "rows seq heads kv_heads head_dim inverse", "rotate q and k by position, in place")             \
  X (ATTENTION, "attention", COMPUTE, "out:w lse:w qkv:r work:s", "batch seq heads kv_heads head_dim", "causal attention")           \
  X (ATTENTION_BWD, "attention_bwd", COMPUTE, "dqkv:w dout:r out:r lse:r qkv:r work:s", "batch seq heads kv_heads head_dim", "its gradients") \
  X (SWIGLU, "swiglu", COMPUTE, "out:w in:r", "rows cols", "silu(gate) * up; in is [rows, 2 cols]")                                  \
  X (SWIGLU_BWD, "swiglu_bwd", COMPUTE, "din:w dout:r in:r", "rows cols", "its gradient")                                            \
  X (CROSS_ENTROPY, "cross_entropy", COMPUTE, "loss:u prob:w logits:r targets:r", "rows cols", "adds every token's loss to the exact sum, keeps the softmax") \
  X (CROSS_ENTROPY_BWD, "cross_entropy_bwd", COMPUTE, "dlogits:w prob:r targets:r", "rows cols", "gradient of the summed loss")      \
  X (NORM_SQ, "norm_sq", COMPUTE, "sum:u in:r", "count", "adds the squares to the exact sum")                                        \
  X (CLIP, "clip", COMPUTE, "coef:w sums:r", "ranks norms tokens", "gradient scale: 1 / tokens and the clipping factor, from all ranks' exact sums") \
  X (ADAMW, "adamw", COMPUTE, "main:u exp_avg:u exp_avg_sq:u grad:r coef:r", "count", "one AdamW update")                            \
  X (ALL_GATHER, "all_gather", COLLECTIVE, "out:w in:r", "count", "every rank's `count` elements, in rank order")                    \
  X (REDUCE_SCATTER, "reduce_scatter", COLLECTIVE, "out:w in:r", "count", "this rank's `count` elements of the sum over ranks")      \
  X (ALL_REDUCE, "all_reduce", COLLECTIVE, "buf:u", "count", "sum over ranks, everywhere")
/* clang-format on */

/* Streams of one rank: X (ID, "name", "summary"). Ops of one stream run in issue order. */
#define PLAN_STREAM_LIST(X) \
  X (HOST, "host", "the process that issues everything") \
  X (COMPUTE, "compute", "kernels") \
  X (GATHER, "gather", "parameter all-gathers") \
  X (REDUCE, "reduce", "gradient reductions")

/* What memory is for: X (ID, "name", "summary"). */
#define PLAN_CATEGORY_LIST(X) \
  X (WEIGHTS, "weights", "compute weights at rest") \
  X (GATHERED, "gathered", "weights gathered for use") \
  X (MAIN_PARAMS, "main_params", "weights the optimizer updates") \
  X (MAIN_GRADS, "main_grads", "accumulated gradients") \
  X (OPTIMIZER, "optimizer", "moments") \
  X (GRAD_BUCKETS, "grad_buckets", "gradients on their way to the reduction") \
  X (ACTIVATIONS, "activations", "saved for the backward pass, and its own gradients") \
  X (LOSS, "loss", "logits and softmax") \
  X (WORKSPACE, "workspace", "scratch of kernels, small state and batches")
