/* Every kind of op, once, complete: the enum, names, parser, printer, checks, sizes, FLOPs,
 * scratch, cost and both kernel tables are made from this list.
 *
 * PLAN_OP_LIST (X): X (ID, "name", CLASS, WORK, COST, "summary", (dims), FLOPS, (operands))
 *   CLASS     MEMORY      alloc, free and touch; take no time on a stream
 *             HOST        runs on the host
 *             COMPUTE     one kernel on one stream
 *             COLLECTIVE  all ranks of a group
 *   WORK      what its time is counted as (PLAN_WORK_LIST)
 *   COST      what its time follows from (PLAN_COST_LIST)
 *   dims      names of the integers, all required
 *   FLOPS     floating-point operations, of the dims as doubles; 0: memory bounds it
 *   operands  (name, access, elements), in order
 *     access    reads, writes, updates; may_read, may_write, may_update: may be absent;
 *               memory: the buffer itself; scratch: contents mean nothing before or after
 *     elements  that the op touches, of the dims as guint64, of `group_ranks`, the size of its
 *               group, and of `refs`, its operands
 *     of scratch: (name, scratch, elements, GPU, sums)
 *     elements  in fp32 on a CPU, of the dims and of `is_fp32`, whether matrices are
 *     GPU       what a GPU takes: PRODUCT cuBLASLt's workspace, ATTENTION that of its forward pass,
 *               SAME as on a CPU, SUMS of `sums` columns by parts of the rows, NONE
 *               (planner/schedule/scratch.h)
 *
 * Code has numbers of operands and dims by their names: PLAN_REF_GEMM_out, PLAN_DIM_GEMM_m
 * (planner/schedule/op-enums.h).
 *
 * Matrices are row-major. `rows` counts tokens of this rank's micro batch. A gemm computes
 * out[m,n] = a * b with layout 0: a[m,k] b[k,n], 1: a[m,k] b[n,k], 2: a[k,m] b[k,n]. In fp8, `col`
 * is the transposed copy, which products over the other dimension read; of a shard of parameters it
 * lies as the shard does, and products transpose it. A unit has `parts` parameters, each with a
 * magnitude. An op with a `scale` multiplies by it, rounds, and raises `amax` to the largest
 * magnitude (planner/schedule/quantizers.h). Without a `scale` an op with an `amax` raises it to
 * the largest magnitude that it stores, for the op that quantises that next: its `largest`.
 *
 * `kind` of an activation is a PlanActivation, `keys` of attention the tokens that each query may
 * see at most; with `kv` those are other ranks' tokens, and the gradient is that of the queries
 * alone. `places` of tokens are those in their documents, which attention does not leave. `stats`
 * of a part of the logits are maxima of whole rows, then sums, then targets' logits, as row_stat
 * makes them: a token's loss is added where its target is.
 * In latent attention each head of queries and keys has `nope` columns without position and `rope`
 * columns that are rotated in neighbouring pairs; the latter are the same for all heads of keys.
 *
 * Dropout either keeps a mask, a byte for each element, or has random numbers that are functions of
 * `key`, `site` (which dropout of the layer), a token's number in the run and the column, and that
 * the backward pass makes again (exec/number/random.h). `start` is the number of a micro batch's
 * first token. Attention with a key drops weights: a head is a site, the key's token the column.
 *
 * Experts: each token goes to `topk` of `experts`. A grouped gemm is one product per group: with
 * layout 1 and 0 its m rows are divided among the groups and each has its own b, with layout 2
 * its k rows are, and each has its own out; layout 3 is the same of factors that are transposed,
 * each group by itself, as grouped_quantize writes them to `col`. `counts` says how many rows a
 * group has, where the host does not. Rows are moved by a map of `entries` numbers
 * (exec/cpu/row-map.h says which), and with them as many `shares` (probabilities). */
#pragma once

/* clang-format off */
#define PLAN_OP_LIST(X) \
  X (ALLOC, "alloc", MEMORY, OTHER, NONE, "take memory", \
     (), 0, ((buf, memory, 0))) \
  X (FREE, "free", MEMORY, OTHER, NONE, "give memory back once the stream gets here", \
     (), 0, ((buf, memory, 0))) \
  X (TOUCH, "touch", MEMORY, OTHER, NONE, \
     "the framework takes here, for the first time, memory that the schedule took before", \
     (), 0, ((buf, memory, 0))) \
  X (INIT, "init", HOST, OTHER, COPY, \
     "initial main weights of one shard of a bucket of this unit", \
     (bucket, shard, shards), 0, ((out, writes, 0))) \
  X (LOAD, "load", HOST, OTHER, COPY, "the next micro batch", \
     (rows), 0, \
     ((tokens, may_write, rows), (targets, may_write, rows), (places, may_write, rows), \
      (start, may_write, 1))) \
  X (INIT_KEY, "init_key", HOST, OTHER, COPY, \
     "the key of a layer's random numbers, made of the run's seed and the layer's number", \
     (), 0, ((out, writes, PLAN_RANDOM_KEY))) \
  X (SYNC, "sync", HOST, OTHER, NONE, "the host waits for this op's events", \
     (), 0, ()) \
  X (WAIT, "wait", HOST, OTHER, NONE, "a stream waits for this op's events", \
     (), 0, ()) \
  X (PREPARE, "prepare", HOST, OTHER, NONE, \
     "the host's own work on parameters for the optimizer", \
     (tensors), 0, ()) \
  X (ZERO, "zero", COMPUTE, COPY, COPY, "fill with zeros", \
     (count), 0, ((out, writes, count))) \
  X (CAST, "cast", COMPUTE, COPY, COPY, "copy between number formats, rounded once", \
     (count), 0, ((out, writes, count), (in, reads, count))) \
  X (QUANTIZE, "quantize", COMPUTE, QUANTISE, TRANSPOSE, \
     "to a scaled format, with its scales; and transposed; by `largest`, if the op that made `in` " \
     "has found its largest magnitude, which begins afresh", \
     (rows, cols), 0, \
     ((out, writes, rows * cols), (col, may_write, rows * cols), (in, reads, rows * cols), \
      (scale, may_read, 1), (amax, may_update, 1), (largest, may_update, 1))) \
  X (GROUPED_QUANTIZE, "grouped_quantize", COMPUTE, QUANTISE, TRANSPOSE, \
     "the same for each of `groups` matrices by itself: of `counts` rows, or of equally many", \
     (rows, cols, groups), 0, \
     ((out, writes, rows * cols), (col, may_write, rows * cols), (in, reads, rows * cols), \
      (counts, may_read, groups), (scale, may_read, 1), (amax, may_update, 1))) \
  X (PARAM_AMAX, "param_amax", COMPUTE, QUANTISE, REDUCTION, \
     "largest magnitudes of each of a unit's parameters in this rank's part of them", \
     (count, parts), 0, ((amax, updates, MIN (parts, count / 16 + 1)), (in, reads, count))) \
  X (PARAM_QUANTIZE, "param_quantize", COMPUTE, QUANTISE, TRANSPOSE, \
     "this rank's part of a unit's parameters to a scaled format, each by its own " \
     "magnitudes; and by columns", \
     (count, parts), 0, \
     ((out, writes, count), (col, may_write, count), (in, reads, count), \
      (amax, may_read, parts), (scales, may_write, parts), \
      (site_scales, may_read, PLAN_QUANTIZERS_OF_PRODUCT * MIN (parts, 4)), \
      (site_amax, may_update, PLAN_QUANTIZERS_OF_PRODUCT * MIN (parts, 4)))) \
  X (INIT_SCALES, "init_scales", HOST, OTHER, COPY, \
     "scales of sites, and the magnitudes of their last steps: those of a run that is resumed, " \
     "else 1", \
     (count, length), 0, ((scales, writes, count), (history, may_write, count * length))) \
  X (RESCALE, "rescale", COMPUTE, QUANTISE, REDUCTION, \
     "next scales of sites, by the largest magnitudes of their last `length` steps; `amax` " \
     "begins afresh", \
     (count, length), 0, \
     ((scales, updates, count), (history, updates, count * length), (amax, updates, count))) \
  X (TRANSPOSE, "transpose", COMPUTE, QUANTISE, TRANSPOSE, "out[cols, rows]", \
     (rows, cols), 0, ((out, writes, rows * cols), (in, reads, rows * cols))) \
  X (GROUPED_TRANSPOSE, "grouped_transpose", COMPUTE, QUANTISE, TRANSPOSE, \
     "the same for each of `groups` matrices, of equally many rows", \
     (rows, cols, groups), 0, ((out, writes, rows * cols), (in, reads, rows * cols))) \
  X (ACCUMULATE, "accumulate", COMPUTE, COPY, COPY, "out += in, summed in the wider format", \
     (count), 0, ((out, updates, count), (in, reads, count))) \
  X (SUM_PARTS, "sum_parts", COMPUTE, COPY, COPY, \
     "out = the sum of `parts` runs of `count` elements, in fp32, rounded once", \
     (count, parts), 0, ((out, writes, count), (in, reads, count * parts))) \
  X (COPY, "copy", COMPUTE, COPY, HOST_COPY, \
     "between the device and the host, rounded where formats differ", \
     (count), 0, ((out, writes, count), (in, reads, count))) \
  X (ADD, "add", COMPUTE, ELEMENT, COPY, "out = a + b", \
     (count), 0, ((out, writes, count), (a, reads, count), (b, reads, count))) \
  X (DROPOUT, "dropout", COMPUTE, ELEMENT, COPY, \
     "zeroes some elements at random, and scales the others", \
     (rows, cols, seq, site), 0, \
     ((out, writes, rows * cols), (mask, may_write, rows * cols), (in, reads, rows * cols), \
      (key, may_read, PLAN_RANDOM_KEY), (start, may_read, 1))) \
  X (DROPOUT_ADD, "dropout_add", COMPUTE, ELEMENT, COPY, "out = a + dropout (b)", \
     (rows, cols, seq, site), 0, \
     ((out, writes, rows * cols), (mask, may_write, rows * cols), (a, reads, rows * cols), \
      (b, reads, rows * cols), (key, may_read, PLAN_RANDOM_KEY), (start, may_read, 1))) \
  X (DROPOUT_BWD, "dropout_bwd", COMPUTE, ELEMENT, COPY, "gradient of what was dropped from", \
     (rows, cols, seq, site), 0, \
     ((din, writes, rows * cols), (dout, reads, rows * cols), (mask, may_read, rows * cols), \
      (key, may_read, PLAN_RANDOM_KEY), (start, may_read, 1))) \
  X (SCALE, "scale", COMPUTE, COPY, COPY, \
     "times a constant: of gradients, 1 / the data-parallel size", \
     (count), 0, ((buf, updates, count))) \
  X (SOFTCAP, "softcap", COMPUTE, ELEMENT, ACTIVATION, "cap * tanh (x / cap), in place", \
     (count), 0, ((buf, updates, count))) \
  X (SOFTCAP_BWD, "softcap_bwd", COMPUTE, ELEMENT, ACTIVATION, "its gradient, in place", \
     (count), 0, ((grad, updates, count), (out, reads, count))) \
  X (POSITIONS, "positions", COMPUTE, ELEMENT, EMBED, "adds each position's row of the table", \
     (rows, cols, seq), 0, \
     ((out, updates, rows * cols), (table, reads, seq * cols), (places, may_read, rows))) \
  X (POSITIONS_BWD, "positions_bwd", COMPUTE, ELEMENT, EMBED_BWD, \
     "gradient of the table's first seq rows", \
     (rows, cols, seq), 0, \
     ((dtable, writes, seq * cols), (dout, reads, rows * cols), (places, may_read, rows))) \
  X (EMBED, "embed", COMPUTE, ELEMENT, EMBED, "look token rows up", \
     (rows, cols, vocab), 0, \
     ((out, writes, rows * cols), (table, reads, vocab * cols), (tokens, reads, rows))) \
  X (EMBED_BWD, "embed_bwd", COMPUTE, ELEMENT, EMBED_BWD, \
     "gradient of the table; rows nobody used become 0", \
     (rows, cols, vocab), 0, \
     ((dtable, writes, vocab * cols), (dout, reads, rows * cols), (tokens, reads, rows), \
      (work, scratch, rows + cols + vocab + 1, SAME, 0))) \
  X (RMSNORM, "rmsnorm", COMPUTE, ELEMENT, NORM, "root-mean-square norm", \
     (rows, cols), 0, \
     ((out, writes, rows * cols), (rstd, writes, rows), (in, reads, rows * cols), \
      (weight, reads, cols), (scale, may_read, 1), (amax, may_update, 1))) \
  X (RMSNORM_BWD, "rmsnorm_bwd", COMPUTE, ELEMENT, NORM_BWD, \
     "its gradients; `add` is added to din, rounded before and after", \
     (rows, cols), 0, \
     ((din, writes, rows * cols), (dweight, writes, cols), (dout, reads, rows * cols), \
      (in, reads, rows * cols), (weight, reads, cols), (rstd, reads, rows), \
      (work, scratch, 0, SUMS, cols), (add, may_read, rows * cols), (amax, may_update, 1))) \
  X (LAYERNORM, "layernorm", COMPUTE, ELEMENT, NORM, "norm by mean and variance", \
     (rows, cols), 0, \
     ((out, writes, rows * cols), (stats, writes, 2 * rows), (in, reads, rows * cols), \
      (weight, reads, cols), (bias, may_read, cols), (scale, may_read, 1), \
      (amax, may_update, 1))) \
  X (LAYERNORM_BWD, "layernorm_bwd", COMPUTE, ELEMENT, NORM_BWD, "the same", \
     (rows, cols), 0, \
     ((din, writes, rows * cols), (dweight, writes, cols), (dbias, may_write, cols), \
      (dout, reads, rows * cols), (in, reads, rows * cols), (weight, reads, cols), \
      (stats, reads, 2 * rows), (add, may_read, rows * cols), \
      (work, scratch, 0, SUMS, 2 * cols), (amax, may_update, 1))) \
  X (ADD_RMSNORM, "add_rmsnorm", COMPUTE, ELEMENT, NORM, \
     "sum = a + b, rounded, and its root-mean-square norm", \
     (rows, cols), 0, \
     ((out, writes, rows * cols), (rstd, writes, rows), (sum, writes, rows * cols), \
      (a, reads, rows * cols), (b, reads, rows * cols), (weight, reads, cols), \
      (scale, may_read, 1), (amax, may_update, 1))) \
  X (ADD_LAYERNORM, "add_layernorm", COMPUTE, ELEMENT, NORM, \
     "sum = a + b, rounded, and its norm by mean and variance", \
     (rows, cols), 0, \
     ((out, writes, rows * cols), (stats, writes, 2 * rows), (sum, writes, rows * cols), \
      (a, reads, rows * cols), (b, reads, rows * cols), (weight, reads, cols), \
      (bias, may_read, cols), (scale, may_read, 1), (amax, may_update, 1))) \
  X (HEAD_NORM, "head_norm", COMPUTE, ELEMENT, NORM, \
     "root-mean-square norm of every head of q and k, with weights or without; v is copied", \
     (rows, heads, kv_heads, q_dim, k_dim), 0, \
     ((out, writes, rows * (heads * q_dim + 2 * kv_heads * k_dim)), \
      (rstd, writes, rows * (heads + kv_heads)), \
      (in, reads, rows * (heads * q_dim + 2 * kv_heads * k_dim)), (q, may_read, q_dim), \
      (k, may_read, k_dim))) \
  X (HEAD_NORM_BWD, "head_norm_bwd", COMPUTE, ELEMENT, NORM_BWD, "its gradients", \
     (rows, heads, kv_heads, q_dim, k_dim), 0, \
     ((din, writes, rows * (heads * q_dim + 2 * kv_heads * k_dim)), (dq, may_write, q_dim), \
      (dk, may_write, k_dim), (dout, reads, rows * (heads * q_dim + 2 * kv_heads * k_dim)), \
      (in, reads, rows * (heads * q_dim + 2 * kv_heads * k_dim)), (q, may_read, q_dim), \
      (k, may_read, k_dim), (rstd, reads, rows * (heads + kv_heads)), \
      (work, scratch, 0, SUMS, q_dim + k_dim))) \
  X (GEMM, "gemm", COMPUTE, GEMM, PRODUCT, "matrix product", \
     (m, n, k, layout), 2.0 * m * n * k, \
     ((out, writes, m * n), (a, reads, m * k), (b, reads, k * n), (bias, may_read, n), \
      (work, scratch, is_fp32 ? 0 : m * k + k * n + m * n, PRODUCT, 0))) \
  X (GEMM_ADD, "gemm_add", COMPUTE, GEMM, PRODUCT, "out += matrix product, rounded once", \
     (m, n, k, layout), 2.0 * m * n * k, \
     ((out, updates, m * n), (a, reads, m * k), (b, reads, k * n), \
      (work, scratch, m * n + (is_fp32 ? 0 : m * k + k * n), PRODUCT, 0))) \
  X (BIAS_BWD, "bias_bwd", COMPUTE, ELEMENT, NORM_BWD, "sums of columns", \
     (rows, cols), 0, ((dbias, writes, cols), (dout, reads, rows * cols))) \
  X (REPEAT_HEADS, "repeat_heads", COMPUTE, ELEMENT, COPY, \
     "q, then k and v once for each query head", \
     (rows, heads, kv_heads, head_dim), 0, \
     ((out, writes, rows * 3 * heads * head_dim), \
      (in, reads, rows * (heads + 2 * kv_heads) * head_dim))) \
  X (REPEAT_HEADS_BWD, "repeat_heads_bwd", COMPUTE, ELEMENT, COPY, "its gradient", \
     (rows, heads, kv_heads, head_dim), 0, \
     ((din, writes, rows * (heads + 2 * kv_heads) * head_dim), \
      (dout, reads, rows * 3 * heads * head_dim))) \
  X (ROPE, "rope", COMPUTE, ELEMENT, ROPE, "rotate q and k by position, in place", \
     (rows, seq, heads, kv_heads, head_dim, inverse), 0, \
     ((qkv, updates, rows * (heads + 2 * kv_heads) * head_dim), (places, may_read, rows))) \
  X (ATTENTION, "attention", COMPUTE, ATTENTION, ATTENTION, "causal attention", \
     (batch, seq, heads, kv_heads, head_dim, keys), 2.0 * batch * seq * keys * heads * head_dim, \
     ((out, writes, batch * seq * heads * head_dim), (lse, writes, batch * seq * heads), \
      (qkv, reads, batch * seq * (heads + 2 * kv_heads) * head_dim), \
      (work, scratch, seq * seq + 4 * seq * head_dim, ATTENTION, 0), \
      (kv, may_read, 2 * batch * seq * kv_heads * head_dim), (places, may_read, batch * seq), \
      (key, may_read, PLAN_RANDOM_KEY), (start, may_read, 1))) \
  X (ATTENTION_BWD, "attention_bwd", COMPUTE, ATTENTION, ATTENTION, "its gradients", \
     (batch, seq, heads, kv_heads, head_dim, keys), 5.0 * batch * seq * keys * heads * head_dim, \
     ((dqkv, writes, refs[PLAN_REF_ATTENTION_BWD_kv].array < 0 \
         ? batch * seq * (heads + 2 * kv_heads) * head_dim : batch * seq * heads * head_dim), \
      (dout, reads, batch * seq * heads * head_dim), \
      (out, reads, batch * seq * heads * head_dim), (lse, reads, batch * seq * heads), \
      (qkv, reads, batch * seq * (heads + 2 * kv_heads) * head_dim), \
      (work, scratch, 2 * seq * seq + 8 * seq * head_dim, NONE, 0), \
      (kv, may_read, 2 * batch * seq * kv_heads * head_dim), \
      (dkv, may_write, 2 * batch * seq * kv_heads * head_dim), \
      (places, may_read, batch * seq), (key, may_read, PLAN_RANDOM_KEY), (start, may_read, 1))) \
  X (ATTENTION_JOIN, "attention_join", COMPUTE, ATTENTION, ACTIVATION, \
     "joins attention over some tokens with that over others", \
     (batch, seq, heads, head_dim), 0, \
     ((out, updates, batch * seq * heads * head_dim), (lse, updates, batch * seq * heads), \
      (part, reads, batch * seq * heads * head_dim), (part_lse, reads, batch * seq * heads))) \
  X (ATTENTION_SINK, "attention_sink", COMPUTE, ATTENTION, ACTIVATION, \
     "a learned score of each head, of no token, joins those that attention is a softmax of", \
     (batch, seq, heads, head_dim), 0, \
     ((out, updates, batch * seq * heads * head_dim), (lse, updates, batch * seq * heads), \
      (sinks, reads, heads))) \
  X (ATTENTION_SINK_BWD, "attention_sink_bwd", COMPUTE, ATTENTION, ACTIVATION, \
     "gradients of these scores", \
     (batch, seq, heads, head_dim), 0, \
     ((dsinks, writes, heads), (dout, reads, batch * seq * heads * head_dim), \
      (out, reads, batch * seq * heads * head_dim), (lse, reads, batch * seq * heads), \
      (sinks, reads, heads))) \
  X (SPLIT_COLS, "split_cols", COMPUTE, COPY, COPY, "the first columns of each row, and the rest", \
     (rows, first, rest), 0, \
     ((out, writes, rows * first), (other, writes, rows * rest), \
      (in, reads, rows * (first + rest)))) \
  X (SPLIT_COLS_BWD, "split_cols_bwd", COMPUTE, COPY, COPY, "its gradient", \
     (rows, first, rest), 0, \
     ((din, writes, rows * (first + rest)), (dout, reads, rows * first), \
      (dother, reads, rows * rest))) \
  X (GATE_HEADS, "gate_heads", COMPUTE, ELEMENT, ACTIVATION, "in times the sigmoid of a gate", \
     (count), 0, ((out, writes, count), (in, reads, count), (gate, reads, count))) \
  X (GATE_HEADS_BWD, "gate_heads_bwd", COMPUTE, ELEMENT, ACTIVATION, "its gradients", (count), 0, \
     ((din, writes, count), (dgate, writes, count), (dout, reads, count), (in, reads, count), \
      (gate, reads, count))) \
  X (DELTA_CONV, "delta_conv", COMPUTE, ELEMENT, ACTIVATION, \
     "each of a row's first columns summed over the last `width` tokens with weights of its own, " \
     "then silu", \
     (rows, cols, width), 0, \
     ((out, writes, rows * cols), (in, reads, rows * cols), (weight, reads, cols * width))) \
  X (DELTA_CONV_BWD, "delta_conv_bwd", COMPUTE, ELEMENT, NORM_BWD, \
     "its gradients; din is a part of a wider row's", \
     (rows, cols, width), 0, \
     ((din, updates, rows * cols), (dweight, writes, cols * width), (dout, reads, rows * cols), \
      (in, reads, rows * cols), (weight, reads, cols * width))) \
  X (DELTA_KEYS, "delta_keys", COMPUTE, ELEMENT, NORM, \
     "heads of queries and keys of length 1, once for each head of values; values are copied", \
     (rows, key_heads, value_heads, key_dim, value_dim), 0, \
     ((out, writes, rows * value_heads * (2 * key_dim + value_dim)), \
      (normed, writes, rows * 2 * key_heads * key_dim), (rstd, writes, rows * 2 * key_heads), \
      (in, reads, rows * (2 * key_heads * key_dim + value_heads * value_dim)))) \
  X (DELTA_KEYS_BWD, "delta_keys_bwd", COMPUTE, ELEMENT, NORM, "its gradient", \
     (rows, key_heads, value_heads, key_dim, value_dim), 0, \
     ((din, writes, rows * (2 * key_heads * key_dim + value_heads * value_dim)), \
      (dout, reads, rows * value_heads * (2 * key_dim + value_dim)), \
      (normed, reads, rows * 2 * key_heads * key_dim), (rstd, reads, rows * 2 * key_heads))) \
  X (DELTA_GATES, "delta_gates", COMPUTE, ELEMENT, ACTIVATION, \
     "the output's gate, and of each head of values the decay of its state, as a logarithm, and the " \
     "strength with which it is written", \
     (rows, heads, value_dim, before), 0, \
     ((gate, writes, rows * heads * value_dim), (decay, writes, rows * heads), \
      (strength, writes, rows * heads), (in, reads, rows * heads * (value_dim + 2)), \
      (step, reads, heads), (rate, reads, heads))) \
  X (DELTA_GATES_BWD, "delta_gates_bwd", COMPUTE, ELEMENT, ACTIVATION, \
     "its gradients; din begins with `before` columns that another op adds to", \
     (rows, heads, value_dim, before), 0, \
     ((din, writes, rows * (before + heads * (value_dim + 2))), (dstep, writes, heads), \
      (drate, writes, heads), (dgate, reads, rows * heads * value_dim), \
      (ddecay, reads, rows * heads), (dstrength, reads, rows * heads), \
      (in, reads, rows * 2 * heads), (strength, reads, rows * heads), (step, reads, heads), \
      (rate, reads, heads))) \
  X (DELTA_RULE, "delta_rule", COMPUTE, ATTENTION, DELTA, \
     "a state per head that decays and is corrected by each token's key and value, read by its " \
     "query; in chunks of 64 tokens, and `work` holds the states between them", \
     (batch, seq, heads, key_dim, value_dim), \
     2.0 * batch * seq * heads * (3.0 * key_dim * value_dim + 64 * (3.0 * key_dim + 2.0 * value_dim + 16)), \
     ((out, writes, batch * seq * heads * value_dim), (inverse, writes, batch * seq * heads * 64), \
      (qkv, reads, batch * seq * heads * (2 * key_dim + value_dim)), \
      (decay, reads, batch * seq * heads), (strength, reads, batch * seq * heads), \
      (work, writes, batch * heads * (seq * (key_dim + 2 * value_dim) + (seq + 63) / 64 * key_dim * value_dim)))) \
  X (DELTA_RULE_BWD, "delta_rule_bwd", COMPUTE, ATTENTION, DELTA, \
     "its gradients; states are made again", \
     (batch, seq, heads, key_dim, value_dim), \
     2.0 * batch * seq * heads * (8.0 * key_dim * value_dim + 64 * (10.0 * key_dim + 5.0 * value_dim + 128)), \
     ((dqkv, writes, batch * seq * heads * (2 * key_dim + value_dim)), \
      (ddecay, writes, batch * seq * heads), (dstrength, writes, batch * seq * heads), \
      (dout, reads, batch * seq * heads * value_dim), (inverse, reads, batch * seq * heads * 64), \
      (qkv, reads, batch * seq * heads * (2 * key_dim + value_dim)), \
      (decay, reads, batch * seq * heads), (strength, reads, batch * seq * heads), \
      (work, writes, batch * heads * (3 * seq * (key_dim + value_dim) + 2 * ((seq + 63) / 64) * key_dim * value_dim)))) \
  X (DELTA_NORM, "delta_norm", COMPUTE, ELEMENT, NORM, \
     "root-mean-square norm of every head, with weights, times silu of a gate", \
     (rows, heads, dim), 0, \
     ((out, writes, rows * heads * dim), (normed, writes, rows * heads * dim), \
      (rstd, writes, rows * heads), (in, reads, rows * heads * dim), \
      (gate, reads, rows * heads * dim), (weight, reads, dim))) \
  X (DELTA_NORM_BWD, "delta_norm_bwd", COMPUTE, ELEMENT, NORM_BWD, "its gradients", \
     (rows, heads, dim), 0, \
     ((din, writes, rows * heads * dim), (dgate, writes, rows * heads * dim), \
      (dweight, writes, dim), (dout, reads, rows * heads * dim), (in, reads, rows * heads * dim), \
      (gate, reads, rows * heads * dim), (normed, reads, rows * heads * dim), \
      (rstd, reads, rows * heads), (weight, reads, dim), (work, scratch, 0, SUMS, dim))) \
  X (SSM_CONV, "ssm_conv", COMPUTE, ELEMENT, ACTIVATION, \
     "some of a row's columns summed over the last `width` tokens with weights of their own, and a " \
     "bias, then silu", \
     (rows, cols, width), 0, \
     ((out, writes, rows * cols), (in, reads, rows * cols), (weight, reads, cols * width), \
      (bias, reads, cols))) \
  X (SSM_CONV_BWD, "ssm_conv_bwd", COMPUTE, ELEMENT, NORM_BWD, \
     "its gradients; din is a part of a wider row's", \
     (rows, cols, width), 0, \
     ((din, updates, rows * cols), (dweight, writes, cols * width), (dbias, writes, cols), \
      (dout, reads, rows * cols), (in, reads, rows * cols), (weight, reads, cols * width), \
      (bias, reads, cols))) \
  X (SSM_SCAN, "ssm_scan", COMPUTE, ATTENTION, SSM, \
     "a state per head that decays and takes up each token's x by B, read by C, then times silu of a " \
     "gate; in chunks of 128 tokens, and `work` holds the states between them", \
     (batch, seq, heads, head_dim, groups, state, room), \
     2.0 * batch * seq * (128.0 * groups * state + heads * head_dim * (64 + 2.0 * state)), \
     ((out, writes, batch * seq * heads * head_dim), \
      (ungated, writes, batch * seq * heads * head_dim), \
      (in, reads, batch * seq * (heads * head_dim + 2 * groups * state)), \
      (gate, reads, batch * seq * heads * (head_dim + 1)), (step, reads, heads), \
      (decay, reads, heads), (skip, reads, heads), (work, writes, room))) \
  X (SSM_SCAN_BWD, "ssm_scan_bwd", COMPUTE, ATTENTION, SSM, \
     "its gradients; states are made again, and dgate is as wide as the projection, to a part of " \
     "which another op adds", \
     (batch, seq, heads, head_dim, groups, state, room), \
     2.0 * batch * seq * (3 * 128.0 * groups * state + heads * head_dim * (192 + 5.0 * state)), \
     ((din, writes, batch * seq * (heads * head_dim + 2 * groups * state)), \
      (dgate, writes, batch * seq * (heads * (2 * head_dim + 1) + 2 * groups * state)), \
      (dstep, writes, heads), (ddecay, writes, heads), (dskip, writes, heads), \
      (dout, reads, batch * seq * heads * head_dim), \
      (ungated, reads, batch * seq * heads * head_dim), \
      (in, reads, batch * seq * (heads * head_dim + 2 * groups * state)), \
      (gate, reads, batch * seq * heads * (head_dim + 1)), (step, reads, heads), \
      (decay, reads, heads), (skip, reads, heads), (work, writes, room))) \
  X (GROUP_NORM, "group_norm", COMPUTE, ELEMENT, NORM, \
     "root-mean-square norm of every group of a row's columns, with weights", \
     (rows, groups, dim), 0, \
     ((out, writes, rows * groups * dim), (rstd, writes, rows * groups), \
      (in, reads, rows * groups * dim), (weight, reads, groups * dim))) \
  X (GROUP_NORM_BWD, "group_norm_bwd", COMPUTE, ELEMENT, NORM_BWD, "its gradients", \
     (rows, groups, dim), 0, \
     ((din, writes, rows * groups * dim), (dweight, writes, groups * dim), \
      (dout, reads, rows * groups * dim), (in, reads, rows * groups * dim), \
      (rstd, reads, rows * groups), (weight, reads, groups * dim), \
      (work, scratch, 0, SUMS, groups * dim))) \
  X (SWIGLU, "swiglu", COMPUTE, ELEMENT, ACTIVATION, "silu(gate) * up; in is [rows, 2 cols]", \
     (rows, cols), 0, \
     ((out, writes, rows * cols), (in, reads, 2 * rows * cols), (amax, may_update, 1))) \
  X (SWIGLU_BWD, "swiglu_bwd", COMPUTE, ELEMENT, ACTIVATION, "its gradient", \
     (rows, cols), 0, \
     ((din, writes, 2 * rows * cols), (dout, reads, rows * cols), (in, reads, 2 * rows * cols), \
      (amax, may_update, 1))) \
  X (SWIGLU_QUANTIZE, "swiglu_quantize", COMPUTE, ELEMENT, TRANSPOSE, \
     "what quantize makes of swiglu's result, by a given scale or by scales of 128 elements", \
     (rows, cols), 0, \
     ((out, writes, rows * cols), (col, may_write, rows * cols), (in, reads, 2 * rows * cols), \
      (scale, may_read, 1), (amax, may_update, 1))) \
  X (SWIGLU_BWD_QUANTIZE, "swiglu_bwd_quantize", COMPUTE, ELEMENT, TRANSPOSE, \
     "the same of its gradient", \
     (rows, cols), 0, \
     ((out, writes, 2 * rows * cols), (col, may_write, 2 * rows * cols), \
      (in, reads, 2 * rows * cols), (scale, may_read, 1), (amax, may_update, 1), \
      (dout, reads, rows * cols))) \
  X (ACTIVATE, "activate", COMPUTE, ELEMENT, ACTIVATION, \
     "activation, times the other half of in where gated", \
     (rows, cols, kind, gated), 0, \
     ((out, writes, rows * cols), (in, reads, gated ? 2 * rows * cols : rows * cols), \
      (amax, may_update, 1))) \
  X (ACTIVATE_BWD, "activate_bwd", COMPUTE, ELEMENT, ACTIVATION, "its gradient", \
     (rows, cols, kind, gated), 0, \
     ((din, writes, gated ? 2 * rows * cols : rows * cols), (dout, reads, rows * cols), \
      (in, reads, gated ? 2 * rows * cols : rows * cols), (amax, may_update, 1))) \
  X (LATENT_ROPE, "latent_rope", COMPUTE, ELEMENT, ROPE, \
     "queries turned by position; keys and values of all heads from the latent ones", \
     (rows, seq, heads, nope, rope, v_dim, rank), 0, \
     ((q, updates, rows * heads * (nope + rope)), (k, writes, rows * heads * (nope + rope)), \
      (v, writes, rows * heads * v_dim), (kv, reads, rows * heads * (nope + v_dim)), \
      (down, reads, rows * (rank + rope)), (places, may_read, rows))) \
  X (LATENT_ROPE_BWD, "latent_rope_bwd", COMPUTE, ELEMENT, ROPE, "its gradients", \
     (rows, seq, heads, nope, rope, v_dim, rank), 0, \
     ((dq, updates, rows * heads * (nope + rope)), (dkv, writes, rows * heads * (nope + v_dim)), \
      (ddown, writes, rows * (rank + rope)), (dk, reads, rows * heads * (nope + rope)), \
      (dv, reads, rows * heads * v_dim), (places, may_read, rows))) \
  X (LATENT_ATTENTION, "latent_attention", COMPUTE, ATTENTION, ATTENTION, \
     "causal attention whose values have another size than its keys", \
     (batch, seq, heads, head_dim, v_dim, keys), 1.0 * batch * seq * keys * heads * (head_dim + v_dim), \
     ((out, writes, batch * seq * heads * v_dim), (lse, writes, batch * seq * heads), \
      (q, reads, batch * seq * heads * head_dim), (k, reads, batch * seq * heads * head_dim), \
      (v, reads, batch * seq * heads * v_dim), \
      (work, scratch, seq * seq + 2 * seq * (head_dim + v_dim), ATTENTION, 0), \
      (places, may_read, batch * seq), (key, may_read, PLAN_RANDOM_KEY), (start, may_read, 1))) \
  X (LATENT_ATTENTION_BWD, "latent_attention_bwd", COMPUTE, ATTENTION, ATTENTION, "its gradients", \
     (batch, seq, heads, head_dim, v_dim, keys), \
     1.0 * batch * seq * keys * heads * (3 * head_dim + 2 * v_dim), \
     ((dq, writes, batch * seq * heads * head_dim), (dk, writes, batch * seq * heads * head_dim), \
      (dv, writes, batch * seq * heads * v_dim), (dout, reads, batch * seq * heads * v_dim), \
      (out, reads, batch * seq * heads * v_dim), (lse, reads, batch * seq * heads), \
      (q, reads, batch * seq * heads * head_dim), (k, reads, batch * seq * heads * head_dim), \
      (v, reads, batch * seq * heads * v_dim), \
      (work, scratch, 2 * seq * seq + 5 * seq * (head_dim + v_dim), NONE, 0), \
      (places, may_read, batch * seq), (key, may_read, PLAN_RANDOM_KEY), (start, may_read, 1))) \
  X (ROUTE, "route", COMPUTE, ELEMENT, ACTIVATION, \
     "each token's experts, chosen by score, or by score and bias, and probabilities; `loads` " \
     "counts the tokens of each expert", \
     (rows, experts, topk), 0, \
     ((probs, writes, rows * experts), (saved, writes, rows * experts), \
      (map, writes, rows * experts), (logits, reads, rows * experts), (bias, may_read, experts), \
      (loads, may_update, experts))) \
  X (ROUTE_BWD, "route_bwd", COMPUTE, ELEMENT, ACTIVATION, \
     "its gradient, with that of an auxiliary loss, of these tokens or of those in `counts`", \
     (rows, experts, topk), 0, \
     ((dlogits, writes, rows * experts), (dprobs, reads, rows * experts), \
      (saved, reads, rows * experts), (map, reads, rows * experts), \
      (counts, may_read, experts))) \
  X (COUNT_ROUTES, "count_routes", COMPUTE, ELEMENT, COPY, "the number of tokens of each expert", \
     (rows, experts), 0, ((counts, writes, experts), (map, reads, rows * experts))) \
  X (INIT_BALANCE, "init_balance", HOST, OTHER, COPY, \
     "biases by which routers choose: those of a run that is resumed, else 0", \
     (layers, experts), 0, ((bias, writes, layers * experts))) \
  X (BALANCE, "balance", COMPUTE, OPTIMIZER, COPY, \
     "a step up for the bias of each expert with fewer tokens than its layer's mean, a step down " \
     "where it has more; none in steps that change no weight", \
     (layers, experts), 0, \
     ((bias, updates, layers * experts), (loads, reads, layers * experts), (coef, reads, 4))) \
  X (DROP_TOKENS, "drop_tokens", COMPUTE, ELEMENT, ACTIVATION, \
     "of each expert's tokens at most `capacity` stay, with their probabilities; `map` has 1 of " \
     "these and 2 of the others", \
     (rows, experts, capacity), 0, \
     ((probs, writes, rows * experts), (map, writes, rows * experts), \
      (in, reads, rows * experts), (routes, reads, rows * experts), \
      (work, scratch, rows * experts + 3 * capacity * experts, NONE, 0))) \
  X (ROW_MAP, "row_map", COMPUTE, ELEMENT, COPY, \
     "where each row goes when rows are sorted by expert: by `routes` to the experts of `ranks` " \
     "ranks, or by `came`, the number of rows that each of `ranks` ranks sent to each expert; " \
     "without either these are equally many", \
     (rows, experts, ranks, entries), 0, \
     ((map, writes, entries), (routes, may_read, rows * experts), \
      (came, may_read, ranks * experts))) \
  X (PERMUTE, "permute", COMPUTE, COPY, COPY, \
     "rows sorted by expert, once for each expert of a row, and their probabilities", \
     (rows, out_rows, cols, entries, shares), 0, \
     ((out, writes, out_rows * cols), (in, reads, rows * cols), (map, reads, entries), \
      (row_probs, may_write, out_rows), (probs, may_read, shares))) \
  X (UNPERMUTE, "unpermute", COMPUTE, COPY, COPY, "rows where they were, those of one added up", \
     (rows, in_rows, cols, entries, shares), 0, \
     ((out, writes, rows * cols), (in, reads, in_rows * cols), (map, reads, entries), \
      (dprobs, may_write, shares), (row_dprobs, may_read, in_rows))) \
  X (SORT, "sort", COMPUTE, COPY, COPY, "numbers in order, and where each of them was before", \
     (count), 0, \
     ((order, writes, count), (keys, reads, count), (sorted, writes, count), \
      (work, may_write, count))) \
  X (INDEX_ROWS, "index_rows", COMPUTE, COPY, COPY, "for each index the row of that number", \
     (rows, cols, of), 0, \
     ((out, writes, rows * cols), (in, reads, of * cols), (index, reads, rows))) \
  X (ADD_ROWS, "add_rows", COMPUTE, COPY, COPY, "adds each row to the one whose number its index is", \
     (rows, cols, of), 0, \
     ((out, updates, of * cols), (in, reads, rows * cols), (index, reads, rows))) \
  X (JOIN_ROWS, "join_rows", COMPUTE, COPY, COPY, \
     "`pieces` runs of rows joined, in another order; `held` elements of them lie in `in`", \
     (count, pieces, held), 0, ((out, writes, count), (in, reads, held))) \
  X (GROUPED_GEMM, "grouped_gemm", COMPUTE, GEMM, PRODUCT, "a matrix product for each expert", \
     (m, n, k, layout, groups), 2.0 * m * n * k, \
     ((out, writes, layout >= 2 ? groups * m * n : m * n), (a, reads, m * k), \
      (b, reads, layout >= 2 ? n * k : groups * n * k), (counts, may_read, groups), \
      (work, scratch, is_fp32 ? 0 : m * k + k * n + m * n, PRODUCT, 0))) \
  X (GROUPED_GEMM_ADD, "grouped_gemm_add", COMPUTE, GEMM, PRODUCT, \
     "out += a matrix product for each expert", \
     (m, n, k, layout, groups), 2.0 * m * n * k, \
     ((out, updates, layout >= 2 ? groups * m * n : m * n), (a, reads, m * k), \
      (b, reads, layout >= 2 ? n * k : groups * n * k), (counts, may_read, groups), \
      (work, scratch, m * n + (is_fp32 ? 0 : m * k + k * n), PRODUCT, 0))) \
  X (EXPERT_ACTIVATE, "expert_activate", COMPUTE, ELEMENT, ACTIVATION, \
     "activation, times the probability of each row", \
     (rows, cols, kind, gated), 0, \
     ((out, writes, rows * cols), (in, reads, gated ? 2 * rows * cols : rows * cols), \
      (probs, reads, rows))) \
  X (EXPERT_ACTIVATE_BWD, "expert_activate_bwd", COMPUTE, ELEMENT, ACTIVATION, "its gradients", \
     (rows, cols, kind, gated), 0, \
     ((din, writes, gated ? 2 * rows * cols : rows * cols), (dprobs, writes, rows), \
      (dout, reads, rows * cols), (in, reads, gated ? 2 * rows * cols : rows * cols), \
      (probs, reads, rows))) \
  X (SCALE_ROWS, "scale_rows", COMPUTE, ELEMENT, ACTIVATION, \
     "rows times the probability of each", (rows, cols), 0, \
     ((out, writes, rows * cols), (in, reads, rows * cols), (probs, reads, rows))) \
  X (SCALE_ROWS_BWD, "scale_rows_bwd", COMPUTE, ELEMENT, ACTIVATION, "its gradients", \
     (rows, cols), 0, \
     ((din, writes, rows * cols), (dprobs, writes, rows), (dout, reads, rows * cols), \
      (in, reads, rows * cols), (probs, reads, rows))) \
  X (EXPERT_BIAS, "expert_bias", COMPUTE, ELEMENT, ACTIVATION, \
     "each expert's bias for its rows, times the probability of each", (rows, cols, groups), 0, \
     ((out, writes, rows * cols), (bias, reads, groups * cols), (probs, reads, rows))) \
  X (EXPERT_BIAS_BWD, "expert_bias_bwd", COMPUTE, ELEMENT, ACTIVATION, "its gradient", \
     (rows, cols, groups), 0, ((dbias, writes, groups * cols), (dout, reads, rows * cols))) \
  X (ADD_EXPERT_BIAS, "add_expert_bias", COMPUTE, ELEMENT, ACTIVATION, \
     "adds to each row its expert's bias, or that times the expert's share of it", \
     (rows, cols, groups), 0, \
     ((out, updates, rows * cols), (bias, reads, groups * cols), (counts, may_read, groups), \
      (probs, may_read, rows))) \
  X (ADD_EXPERT_BIAS_BWD, "add_expert_bias_bwd", COMPUTE, ELEMENT, ACTIVATION, "its gradients", \
     (rows, cols, groups), 0, \
     ((dbias, writes, groups * cols), (dout, reads, rows * cols), (counts, may_read, groups), \
      (probs, may_read, rows), (bias, may_read, groups * cols), (dprobs, may_write, rows))) \
  X (GATE, "gate", COMPUTE, ELEMENT, ACTIVATION, \
     "rows times the sigmoid of a score of each, which takes its place", (rows, cols), 0, \
     ((out, writes, rows * cols), (score, updates, rows), (in, reads, rows * cols))) \
  X (GATE_BWD, "gate_bwd", COMPUTE, ELEMENT, ACTIVATION, "its gradients", (rows, cols), 0, \
     ((din, writes, rows * cols), (dscore, writes, rows), (dout, reads, rows * cols), \
      (in, reads, rows * cols), (score, reads, rows))) \
  X (ROW_STAT, "row_stat", COMPUTE, LOSS, LOSS, \
     "a number per row of a part of the logits: their maximum; with `max`, that of all parts, the " \
     "sum of e^(x - max); with `targets` the target's logit, where it is in this part", \
     (rows, cols), 0, \
     ((out, writes, rows), (in, reads, rows * cols), (max, may_read, rows), \
      (targets, may_read, rows))) \
  X (CROSS_ENTROPY, "cross_entropy", COMPUTE, LOSS, LOSS, \
     "adds every token's loss to the exact sum, keeps the softmax", \
     (rows, cols), 0, \
     ((loss, updates, PLAN_EXACT_LIMBS), (prob, writes, rows * cols), \
      (logits, reads, rows * cols), (targets, reads, rows), (stats, may_read, 3 * rows))) \
  X (CROSS_ENTROPY_BWD, "cross_entropy_bwd", COMPUTE, LOSS, LOSS, "gradient of the summed loss", \
     (rows, cols), 0, \
     ((dlogits, writes, rows * cols), (prob, reads, rows * cols), (targets, reads, rows))) \
  X (LOSS_GRAD, "loss_grad", COMPUTE, LOSS, LOSS, \
     "adds every token's loss to the exact sum; its logits become their gradient", \
     (rows, cols), 0, \
     ((loss, updates, PLAN_EXACT_LIMBS), (logits, updates, rows * cols), (targets, reads, rows), \
      (work, scratch, cols, NONE, 0), (stats, may_read, 3 * rows))) \
  X (NORM_SQ, "norm_sq", COMPUTE, OPTIMIZER, REDUCTION, "adds the squares to the exact sum", \
     (count), 0, ((sum, updates, PLAN_EXACT_LIMBS), (in, reads, count))) \
  X (CLIP, "clip", COMPUTE, OPTIMIZER, REDUCTION, \
     "gradient scale: 1 / tokens and the clipping factor, from all ranks' exact sums", \
     (ranks, norms, tokens), 0, \
     ((coef, writes, 4), (sums, reads, 2 * PLAN_EXACT_LIMBS * ranks))) \
  X (ADAMW, "adamw", COMPUTE, OPTIMIZER, OPTIMIZER, "one AdamW update; `out` = main, rounded", \
     (count), 0, \
     ((main, updates, count), (exp_avg, updates, count), (exp_avg_sq, updates, count), \
      (grad, reads, count), (coef, reads, 4), (out, may_write, count))) \
  X (ADAMW_HOST, "adamw_host", COMPUTE, OPTIMIZER, HOST_OPTIMIZER, \
     "one AdamW update, by the host", \
     (count), 0, \
     ((main, updates, count), (exp_avg, updates, count), (exp_avg_sq, updates, count), \
      (grad, reads, count), (coef, reads, 4))) \
  X (SGD, "sgd", COMPUTE, OPTIMIZER, OPTIMIZER, "one SGD update with momentum; `out` = main, rounded", \
     (count), 0, \
     ((main, updates, count), (momentum, updates, count), (grad, reads, count), \
      (coef, reads, 4), (out, may_write, count))) \
  X (ALL_GATHER, "all_gather", COLLECTIVE, OTHER, COLLECTIVE, \
     "every rank's `count` elements, in rank order", \
     (count), 0, ((out, writes, count * group_ranks), (in, reads, count))) \
  X (REDUCE_SCATTER, "reduce_scatter", COLLECTIVE, OTHER, COLLECTIVE, \
     "this rank's `count` elements of the sum over ranks", \
     (count), 0, ((out, writes, count), (in, reads, count * group_ranks))) \
  X (ALL_TO_ALL, "all_to_all", COLLECTIVE, OTHER, COLLECTIVE, \
     "to each rank its `count` elements; from each rank this one's", \
     (count), 0, ((out, writes, count * group_ranks), (in, reads, count * group_ranks))) \
  X (ALL_REDUCE, "all_reduce", COLLECTIVE, OTHER, COLLECTIVE, "sum over ranks, everywhere", \
     (count), 0, ((buf, updates, count))) \
  X (ALL_REDUCE_MAX, "all_reduce_max", COLLECTIVE, OTHER, COLLECTIVE, \
     "largest over ranks, everywhere", \
     (count), 0, ((buf, updates, count))) \
  X (EXCHANGE, "exchange", COLLECTIVE, OTHER, COLLECTIVE, \
     "this rank's elements to the next, the one before's here, or as many ranks further as " \
     "`distance` says", \
     (count), 0, ((out, writes, count), (in, reads, count))) \
  X (TRADE, "trade", COLLECTIVE, OTHER, COLLECTIVE, \
     "sends `in` to member `peer` of the group, receives `out` from it, or both; what comes is an " \
     "input, or its `gradient`", \
     (count, peer, gradient), 0, ((out, may_write, count), (in, may_read, count))) \
  X (SEND_TOKENS, "send_tokens", COLLECTIVE, OTHER, COLLECTIVE, \
     "rows to the ranks of their experts, or back, once to each rank and node; `near` of them over " \
     "the link, `far` over the network; and their probabilities", \
     (out_rows, in_rows, cols, near, far), 0, \
     ((out, writes, out_rows * cols), (in, reads, in_rows * cols), \
      (row_probs, may_write, out_rows), (probs, may_read, in_rows)))
/* clang-format on */

/* What an op's time follows from: X (ID, "name"). PLAN_TRAFFIC_LIST: bytes that go through memory,
 * at the share of its bandwidth that such ops reach (sim/cost/cost-params.h). */
#define PLAN_TRAFFIC_LIST(X) \
  X (COPY, "copy") \
  X (TRANSPOSE, "transpose") \
  X (NORM, "norm") \
  X (NORM_BWD, "norm_bwd") \
  X (ACTIVATION, "activation") \
  X (ROPE, "rope") \
  X (EMBED, "embed") \
  X (EMBED_BWD, "embed_bwd") \
  X (LOSS, "loss") \
  X (REDUCTION, "reduction") \
  X (OPTIMIZER, "optimizer")
#define PLAN_COST_LIST(X) \
  PLAN_TRAFFIC_LIST (X) \
  X (PRODUCT, "product") \
  X (ATTENTION, "attention") \
  X (DELTA, "delta") /* the gated delta rule */ \
  X (SSM, "ssm")     /* the scan of a state space */ \
  X (COLLECTIVE, "collective") \
  X (HOST_COPY, "copy")           /* over the link to the host */ \
  X (HOST_OPTIMIZER, "optimizer") /* by the host */ \
  X (NONE, "none")                /* takes no time of its own */

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
  X (NEXT, "next", "activations and their gradients, to and from the next stage of a pipeline") \
  X (PREV, "prev", "the same, to and from the stage before") \
  X (COPY, "copy", "between the device and the host") \
  X (EXPERTS, "experts", \
     "tokens to their experts and back, beside compute of another micro batch") \
  X (FETCH, "fetch", "activations from the host, beside others that go there")

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
