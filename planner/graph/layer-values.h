/* PlanValueId: what nodes of one layer make for others. X is the output of the layer before. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_VALUE_LIST(X) \
  X (X, "x") \
  X (NORM1, "norm1") \
  X (NORM1_Q, "norm1.q") \
  X (NORM1_COL, "norm1.col") \
  X (STATS1, "rstd1") \
  X (NORM1_FULL, "norm1.full") \
  X (NORM1_FULL_COL, "norm1.full.col") \
  X (QKV, "qkv") \
  X (QKV_SAVED, "qkv.saved") \
  X (HEADS, "heads") \
  X (HEAD_STATS, "rstd.heads") \
  X (KEYS_COPIED, "qkv.copied") /* for each query head, or side by side */ \
  X (ATTN, "attn") \
  X (LSE, "lse") \
  X (ATTN_Q, "attn.q") \
  X (ATTN_COL, "attn.col") \
  X (PROJ, "proj") \
  X (PROJ_SUM, "proj.sum") \
  X (POST1, "post1") \
  X (POST1_STATS, "rstd.post1") \
  X (MASK1, "mask1") \
  X (HIDDEN2, "hidden2") \
  X (NORM2, "norm2") \
  X (NORM2_Q, "norm2.q") \
  X (NORM2_COL, "norm2.col") \
  X (STATS2, "rstd2") \
  X (NORM2_FULL, "norm2.full") \
  X (NORM2_FULL_COL, "norm2.full.col") \
  X (UP, "gate_up") \
  X (UP_SAVED, "gate_up.saved") \
  X (GATE, "gate") \
  X (ACT, "act") \
  X (ACT_Q, "act.q") \
  X (ACT_COL, "act.col") \
  X (DOWN, "down") \
  X (DOWN_SUM, "down.sum") \
  X (POST2, "post2") \
  X (POST2_STATS, "rstd.post2") \
  X (MASK2, "mask2") \
  X (Q_LATENT, "q_latent") /* latent attention */ \
  X (Q_LATENT_NORM, "q_latent.norm") \
  X (Q_LATENT_Q, "q_latent.q") \
  X (Q_LATENT_COL, "q_latent.col") \
  X (Q_LATENT_STATS, "rstd.q_latent") \
  X (Q_LATENT_FULL, "q_latent.full") \
  X (Q_LATENT_FULL_COL, "q_latent.full.col") \
  X (Q, "q") \
  X (KV_LATENT, "kv_latent") \
  X (KV_LATENT_NORM, "kv_latent.norm") \
  X (KV_LATENT_Q, "kv_latent.q") \
  X (KV_LATENT_COL, "kv_latent.col") \
  X (KV_LATENT_STATS, "rstd.kv_latent") \
  X (KV_LATENT_FULL, "kv_latent.full") \
  X (KV_LATENT_FULL_COL, "kv_latent.full.col") \
  X (KEYS_COMMON, "keys.common") \
  X (KV, "kv") \
  X (K, "k") \
  X (V, "v") \
  X (QKV_GATE, "qkv.gate") /* attention with a gate on its output */ \
  X (GATE_HEADS, "attn.gate") \
  X (ATTN_GATED, "attn.gated") /* by that gate, or by sinks */ \
  /* Of whatever has a state in place of attention. */ \
  X (MIXER_IN, "mixer.in") \
  X (MIXER_CONV, "mixer.conv") \
  X (MIXER_OUT, "mixer.out") \
  X (MIXER_UNGATED, "mixer.ungated") \
  X (MIXER_WORK, "mixer.work") \
  X (MIXER_WORK_BACK, "mixer.work.back") \
  X (MIXER_STATS, "rstd.mixer") \
  X (MIXER_READY, "mixer.ready") \
  X (MIXER_READY_Q, "mixer.ready.q") \
  X (MIXER_READY_COL, "mixer.ready.col") \
  X (DELTA_QKV, "delta.qkv") \
  X (DELTA_KEYS, "delta.keys") \
  X (DELTA_KEY_STATS, "rstd.delta.keys") \
  X (DELTA_GATE, "delta.gate") \
  X (DELTA_DECAY, "delta.decay") \
  X (DELTA_STRENGTH, "delta.strength") \
  X (DELTA_INVERSE, "delta.inverse") \
  /* Experts: of the tokens here, then of the rows that came. */ \
  X (PROBS, "probs") \
  X (ROUTE_SAVED, "route.saved") \
  X (ROUTE_MAP, "route.map") \
  X (LEFT_PROBS, "probs.left") \
  X (LEFT_MAP, "route.map.left") \
  X (NARROW_Q, "narrow.q") \
  X (NARROW_COL, "narrow.col") \
  X (NARROW, "narrow") \
  X (ROW_MAP, "row_map") \
  X (PLACES, "row_places") \
  X (SENT, "rows.sent") \
  X (SENT_PROBS, "row_probs.sent") \
  X (CAME, "rows.came") \
  X (CAME_PROBS, "row_probs.came") \
  X (CAME_COUNTS, "rows.came.counts") \
  X (JOINED, "rows.joined") \
  X (JOINED_PROBS, "probs.joined") \
  X (JOINED_MAP, "route.map.joined") \
  X (JOINED_COUNTS, "rows.joined.counts") \
  X (OWN_PROBS, "probs.own") \
  X (OWN_MAP, "route.map.own") \
  X (SORT_MAP, "sort_map") \
  X (ROWS, "rows") \
  X (ROWS_SCALED, "rows.scaled") \
  X (ROWS_Q, "rows.q") \
  X (ROWS_COL, "rows.col") \
  X (ROW_PROBS, "row_probs") \
  X (EXPERT_UP, "expert.gate_up") \
  X (EXPERT_GATE, "expert.gate") \
  X (EXPERT_ACT, "expert.act") \
  X (EXPERT_ACT_Q, "expert.act.q") \
  X (EXPERT_ACT_COL, "expert.act.col") \
  X (EXPERT_DOWN, "expert.down") \
  X (UNSORTED, "rows.unsorted") \
  X (REDUCED, "rows.reduced") \
  X (RETURNED, "rows.returned") \
  X (COMBINED, "combined") \
  X (COMBINED_Q, "combined.q") \
  X (COMBINED_COL, "combined.col") \
  X (WIDENED, "widened") /* behind experts of another width; or rows in fp32 */ \
  X (SHARED_UP, "shared.gate_up") \
  X (SHARED_UP_SAVED, "shared.gate_up.saved") \
  X (SHARED_ACT, "shared.act") \
  X (SHARED_ACT_Q, "shared.act.q") \
  X (SHARED_ACT_COL, "shared.act.col") \
  X (SHARED_DOWN, "shared.down") \
  X (SHARED_SCORE, "shared.score") \
  X (SHARED_GATED, "shared.gated") \
  X (MOE_OUT, "moe_out") \
  X (OUT, "x") /* x of the next layer */

typedef enum
{
#define X(id, name) PLAN_VALUE_##id,
  PLAN_VALUE_LIST (X)
#undef X
      PLAN_N_VALUES,
  PLAN_NO_VALUE = PLAN_N_VALUES
} PlanValueId;

const char *plan_value_name (PlanValueId id);

G_END_DECLS
