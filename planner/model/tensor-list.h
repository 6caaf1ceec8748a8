/* Every kind of parameter tensor, once, in the order in which a Megatron-LM model of Transformer
 * Engine's modules names them, and in which buckets are packed. The output projection of attention
 * comes first, since a base class makes it (megatron/core/transformer/attention.py at d98e8a64); a
 * norm is the first parameter of the linear layer behind it, a bias follows its weight
 * (transformer_engine/pytorch/module/layernorm_linear.py at d0067d0d); parameters of a module
 * itself come before those of its parts (gated_delta_net/common.py at d98e8a64). Frameworks that
 * name them otherwise say so in PlanStack. ROUTER_BIAS balances the experts; ROUTER_BIASES is of
 * the router's linear layer.
 *
 * PLAN_TENSOR_LIST (X): X (ID, number, "name", PLACE, PART, KIND, count, rows, cols)
 *   number  the enum's value; initial weights are drawn from it, so it never changes
 *   PLACE   OUTER  once per model
 *           MIXER  in layers that mix tokens: ATTN by attention, DELTA by the gated delta rule, SSM
 *                  by a state space
 *           FFN    in layers behind whose norm is, DENSE, one MLP or, MOE, experts
 *           MTP    in every multi-token prediction module, before its layer
 *                  Every layer of a transformer is of MIXER and of FFN; of a pattern, of one
 *   PART    what it counts as; biases count as such whatever their part
 *   KIND    LINEAR  weight of a linear layer: what fp8 recipes quantise and FLOPs count
 *           TABLE   any other matrix, never quantised
 *           GAIN    vector that scales a norm, or a decay
 *           BIAS    vector that is added
 *           STATE   as BIAS, but without gradient: it is moved by a rule of its own
 *   count   how many there are in its place, such as one per expert; 0: the model has none
 *   rows    dim 0, of a vector its length
 *   cols    1 of a vector
 *
 * In the expressions: `m` is the model, `vocab` the rows of its vocabulary, `h` its width, `e`
 * that of what experts read and make, `q` and `kv` the widths of queries and of keys, `gate` that
 * of the gate of attention's output, `v` that of the output, `mla` whether attention is latent,
 * `d` whether there are layers of the delta rule, `s` of a state space, `up` how many matrices
 * read an MLP's input. */
#pragma once

/* clang-format off */
#define PLAN_TENSOR_LIST(X)                                                                                                  \
  X (EMBEDDING, 0, "embedding", OUTER, EMBEDDING, TABLE, 1, vocab, h)                                                        \
  X (POSITIONS, 9, "positions", OUTER, POSITIONS, TABLE, m->positions == PLAN_POSITIONS_LEARNED, m->max_seq, h)              \
  X (EMBED_NORM, 43, "embed_norm", OUTER, NORMS, GAIN, m->embed_norm, h, 1)                                                  \
  X (EMBED_NORM_BIAS, 44, "embed_norm_bias", OUTER, NORMS, BIAS, m->embed_norm && m->norm_bias, h, 1)                        \
  X (DELTA_STEP, 45, "delta_step", DELTA, ATTENTION, BIAS, d, m->delta.value_heads, 1)                                       \
  X (DELTA_DECAY, 46, "delta_decay", DELTA, ATTENTION, GAIN, d, m->delta.value_heads, 1)                                     \
  X (SSM_CONV, 51, "ssm_conv", SSM, ATTENTION, TABLE, s, plan_ssm_turned (&m->ssm), m->ssm.conv)                             \
  X (SSM_CONV_BIAS, 52, "ssm_conv_bias", SSM, ATTENTION, BIAS, s, plan_ssm_turned (&m->ssm), 1)                              \
  X (SSM_STEP, 53, "ssm_step", SSM, ATTENTION, BIAS, s, m->ssm.heads, 1)                                                     \
  X (SSM_DECAY, 54, "ssm_decay", SSM, ATTENTION, GAIN, s, m->ssm.heads, 1)                                                   \
  X (SSM_SKIP, 55, "ssm_skip", SSM, ATTENTION, GAIN, s, m->ssm.heads, 1)                                                     \
  X (PROJ, 3, "proj", ATTN, ATTENTION, LINEAR, 1, h, v)                                                                      \
  X (PROJ_BIAS, 21, "proj_bias", ATTN, ATTENTION, BIAS, m->proj_bias, h, 1)                                                  \
  X (ATTENTION_NORM, 1, "attention_norm", MIXER, NORMS, GAIN, 1, h, 1)                                                       \
  X (ATTENTION_NORM_BIAS, 10, "attention_norm_bias", MIXER, NORMS, BIAS, m->norm_bias, h, 1)                                 \
  X (QKV, 2, "qkv", ATTN, ATTENTION, LINEAR, !mla, gate + q + 2 * kv, h)                                                     \
  X (QKV_BIAS, 11, "qkv_bias", ATTN, ATTENTION, BIAS, m->qkv_bias, gate + q + 2 * kv, 1)                                     \
  X (Q_NORM, 12, "q_norm", ATTN, NORMS, GAIN, m->qk_norm != PLAN_QK_NORM_OFF,                                                \
     m->qk_norm == PLAN_QK_NORM_FULL ? q : m->head_dim, 1)                                                                   \
  X (K_NORM, 13, "k_norm", ATTN, NORMS, GAIN, m->qk_norm != PLAN_QK_NORM_OFF,                                                \
     m->qk_norm == PLAN_QK_NORM_FULL ? kv : m->head_dim, 1)                                                                  \
  X (Q, 14, "q", ATTN, ATTENTION, LINEAR, mla && m->q_lora == 0, q, h)                                                       \
  X (Q_DOWN, 15, "q_down", ATTN, ATTENTION, LINEAR, m->q_lora > 0, m->q_lora, h)                                             \
  X (Q_UP_NORM, 16, "q_up_norm", ATTN, NORMS, GAIN, m->q_lora > 0, m->q_lora, 1)                                             \
  X (Q_UP, 17, "q_up", ATTN, ATTENTION, LINEAR, m->q_lora > 0, q, m->q_lora)                                                 \
  X (KV_DOWN, 18, "kv_down", ATTN, ATTENTION, LINEAR, mla, m->kv_lora + m->rope_dim, h)                                      \
  X (KV_UP_NORM, 19, "kv_up_norm", ATTN, NORMS, GAIN, mla, m->kv_lora, 1)                                                    \
  X (KV_UP, 20, "kv_up", ATTN, ATTENTION, LINEAR, mla, m->heads * (m->nope_dim + m->v_dim), m->kv_lora)                      \
  X (DELTA_IN, 47, "delta_in", DELTA, ATTENTION, LINEAR, d, plan_delta_projected (&m->delta), h)                             \
  X (DELTA_CONV, 48, "delta_conv", DELTA, ATTENTION, TABLE, d, plan_delta_turned (&m->delta), m->delta.conv)                 \
  X (DELTA_NORM, 49, "delta_norm", DELTA, NORMS, GAIN, d, m->delta.value_dim, 1)                                             \
  X (DELTA_OUT, 50, "delta_out", DELTA, ATTENTION, LINEAR, d, h, plan_delta_values (&m->delta))                              \
  X (SSM_IN, 56, "ssm_in", SSM, ATTENTION, LINEAR, s, plan_ssm_projected (&m->ssm), h)                                       \
  X (SSM_NORM, 57, "ssm_norm", SSM, NORMS, GAIN, s, plan_ssm_inner (&m->ssm), 1)                                             \
  X (SSM_OUT, 58, "ssm_out", SSM, ATTENTION, LINEAR, s, h, plan_ssm_inner (&m->ssm))                                         \
  X (ATTENTION_POST_NORM, 22, "attention_post_norm", MIXER, NORMS, GAIN, m->post_norms, h, 1)                                \
  X (SINKS, 39, "sinks", ATTN, ATTENTION, BIAS, m->sinks, m->heads, 1)                                                       \
  X (MLP_NORM, 4, "mlp_norm", FFN, NORMS, GAIN, !m->shared_norm, h, 1)                                                       \
  X (MLP_NORM_BIAS, 23, "mlp_norm_bias", FFN, NORMS, BIAS, m->norm_bias && !m->shared_norm, h, 1)                            \
  X (GATE_UP, 5, "gate_up", DENSE, MLP, LINEAR, 1, up * m->ffn, h)                                                           \
  X (GATE_UP_BIAS, 24, "gate_up_bias", DENSE, MLP, BIAS, m->mlp_bias, up * m->ffn, 1)                                        \
  X (DOWN, 6, "down", DENSE, MLP, LINEAR, 1, h, m->ffn)                                                                      \
  X (DOWN_BIAS, 25, "down_bias", DENSE, MLP, BIAS, m->mlp_bias, h, 1)                                                        \
  X (ROUTER, 26, "router", MOE, ROUTER, TABLE, 1, m->experts, h)                                                             \
  X (ROUTER_BIAS, 27, "router_bias", MOE, ROUTER, STATE, m->router_bias, m->experts, 1)                                      \
  X (ROUTER_BIASES, 40, "router_biases", MOE, ROUTER, BIAS, m->expert_bias, m->experts, 1)                                   \
  X (EXPERT_IN, 59, "expert_in", MOE, SHARED_EXPERTS, LINEAR, m->expert_hidden > 0, m->expert_hidden, h)                     \
  X (EXPERT_GATE_UP, 28, "expert_gate_up", MOE, EXPERTS, LINEAR, m->experts, up * m->expert_ffn, e)                          \
  X (EXPERT_GATE_UP_BIAS, 41, "expert_gate_up_bias", MOE, EXPERTS, BIAS, m->expert_bias ? m->experts : 0,                    \
     up * m->expert_ffn, 1)                                                                                                  \
  X (EXPERT_DOWN, 29, "expert_down", MOE, EXPERTS, LINEAR, m->experts, e, m->expert_ffn)                                     \
  X (EXPERT_DOWN_BIAS, 42, "expert_down_bias", MOE, EXPERTS, BIAS, m->expert_bias ? m->experts : 0, h, 1)                    \
  X (EXPERT_OUT, 60, "expert_out", MOE, SHARED_EXPERTS, LINEAR, m->expert_hidden > 0, h, m->expert_hidden)                   \
  X (SHARED_GATE_UP, 30, "shared_gate_up", MOE, SHARED_EXPERTS, LINEAR, m->shared_ffn > 0, up * m->shared_ffn, h)            \
  X (SHARED_DOWN, 31, "shared_down", MOE, SHARED_EXPERTS, LINEAR, m->shared_ffn > 0, h, m->shared_ffn)                       \
  X (SHARED_GATE, 32, "shared_gate", MOE, SHARED_EXPERTS, TABLE, m->shared_gate, 1, h)                                       \
  X (MLP_POST_NORM, 33, "mlp_post_norm", FFN, NORMS, GAIN, m->post_norms, h, 1)                                              \
  X (FINAL_NORM, 7, "final_norm", OUTER, NORMS, GAIN, 1, h, 1)                                                               \
  X (FINAL_NORM_BIAS, 34, "final_norm_bias", OUTER, NORMS, BIAS, m->norm_bias, h, 1)                                         \
  X (OUTPUT, 8, "output", OUTER, OUTPUT, TABLE, !m->tied_embeddings, vocab, h)                                               \
  X (MTP_EMBEDDING_NORM, 35, "mtp_embedding_norm", MTP, NORMS, GAIN, m->mtp > 0, h, 1)                                       \
  X (MTP_HIDDEN_NORM, 36, "mtp_hidden_norm", MTP, NORMS, GAIN, m->mtp > 0, h, 1)                                             \
  X (MTP_PROJ, 37, "mtp_proj", MTP, ATTENTION, LINEAR, m->mtp > 0, h, 2 * h)                                                 \
  X (MTP_FINAL_NORM, 38, "mtp_final_norm", MTP, NORMS, GAIN, m->mtp > 0, h, 1)
