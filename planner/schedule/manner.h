/* PlanManner: properties of an op that change its results but not its sizes, such as attention's
 * window. 0 everywhere is the usual case and is not printed.
 *
 * PLAN_MANNER_LIST (X): X (ID, "name", "meaning", (kinds of op that may have it)) */
#pragma once
#include "planner/schedule/op-enums.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_MANNER_LIST(X) \
  X (WINDOW, "window", "tokens that a query sees at most, the last its own; 0: all before it", \
     (ATTENTION, ATTENTION_BWD)) \
  X (CHUNK, "chunk", "a query sees none before the first of every so many tokens; 0: all", \
     (ATTENTION, ATTENTION_BWD)) \
  X (SCALAR, "scalar", "scores are divided by its root; 0: by that of head_dim", \
     (ATTENTION, ATTENTION_BWD, LATENT_ATTENTION, LATENT_ATTENTION_BWD)) \
  X (CAP, "cap", "cap * tanh (x / cap) takes the place of x; of scores 0: nothing does", \
     (ATTENTION, ATTENTION_BWD, LATENT_ATTENTION, LATENT_ATTENTION_BWD, SOFTCAP, SOFTCAP_BWD)) \
  X (ALIBI, "alibi", \
     "1: scores fall with distance, by a slope for each head (planner/model/alibi.h)", \
     (ATTENTION, ATTENTION_BWD)) \
  X (TURNED, "turned", "elements of a head that rotary positions turn, its first; 0: all", (ROPE)) \
  X (THETA, "theta", "base of rotary positions that are not scaled; 0: as the model has them", \
     (ROPE)) \
  X (ONE_PLUS, "one_plus", "what a norm scales by is its weight plus this", \
     (RMSNORM, RMSNORM_BWD, LAYERNORM, LAYERNORM_BWD, ADD_RMSNORM, ADD_LAYERNORM, HEAD_NORM, \
      HEAD_NORM_BWD)) \
  X (PITCH, "pitch", \
     "elements from one row to the next of what is read and of its gradient; 0: cols", \
     (RMSNORM, RMSNORM_BWD)) \
  X (FACTOR, "factor", "what is multiplied by; 0: 1 / the data-parallel size", (SCALE)) \
  X (FIRST, "first", "the first that is here of a vocabulary, of heads or of rows in parts", \
     (EMBED, EMBED_BWD, ROW_STAT, CROSS_ENTROPY, CROSS_ENTROPY_BWD, LOSS_GRAD, ATTENTION, \
      ATTENTION_BWD, LATENT_ATTENTION, LATENT_ATTENTION_BWD, POSITIONS, POSITIONS_BWD, DROPOUT, \
      DROPOUT_ADD, DROPOUT_BWD)) \
  X (GROUPS, "groups", "groups of experts, of which the best are chosen first; 0: there are none", \
     (ROUTE)) \
  X (GROUP_TOPK, "group_topk", "how many groups are chosen", (ROUTE)) \
  X (MULTIPLE, "multiple", \
     "rows of each expert begin at a multiple of it, behind rows of zeros; 0: at any row", \
     (ROW_MAP)) \
  X (CAPACITY, "capacity", \
     "rows that each expert has of each rank, the last ones of zeros; 0: as many as chose it", \
     (ROW_MAP)) \
  X (AUX_LOSS, "aux_loss", "coefficient of the loss that balances experts; 0: there is none", \
     (ROUTE_BWD)) \
  X (COUNTED, "counted", "tokens, of several ranks, that it is of; 0: those that are here", \
     (ROUTE_BWD)) \
  X (BY_POSITION, "by_position", "1: an expert's first tokens stay; 0: those that it weighs most", \
     (DROP_TOKENS)) \
  X (WHOLE, "whole", \
     "how many there are of that vocabulary, or of heads with slopes, in all parts; " \
     "0: all are here", \
     (EMBED, EMBED_BWD, ROW_STAT, CROSS_ENTROPY, CROSS_ENTROPY_BWD, LOSS_GRAD, ATTENTION, \
      ATTENTION_BWD)) \
  X (PART, "part", \
     "the part of each sequence that is here, of `parts` (planner/schedule/sequence.h)", \
     (ROPE, ATTENTION, ATTENTION_BWD, POSITIONS, POSITIONS_BWD, DROPOUT, DROPOUT_ADD, \
      DROPOUT_BWD)) \
  X (PARTS, "parts", "parts of each sequence, a rank's each; 0: all of it is here", \
     (ROPE, ATTENTION, ATTENTION_BWD, POSITIONS, POSITIONS_BWD, DROPOUT, DROPOUT_ADD, \
      DROPOUT_BWD)) \
  X (RATE, "rate", "the share of elements, or of attention's weights, that dropout zeroes", \
     (DROPOUT, DROPOUT_ADD, DROPOUT_BWD, ATTENTION, ATTENTION_BWD, LATENT_ATTENTION, \
      LATENT_ATTENTION_BWD)) \
  X (LIMIT, "limit", \
     "gates are at most so much, and what they multiply is, either way; 0: there is no bound", \
     (ACTIVATE, ACTIVATE_BWD, EXPERT_ACTIVATE, EXPERT_ACTIVATE_BWD)) \
  X (OFFSET, "offset", "what is added to what gates multiply", \
     (ACTIVATE, ACTIVATE_BWD, EXPERT_ACTIVATE, EXPERT_ACTIVATE_BWD)) \
  X (PIECE, "piece", \
     "elements of each row that are copied or added; they are neighbours on the other side; 0: " \
     "all", \
     (CAST, ACCUMULATE)) \
  X (WIDTH, "width", "elements of such a row, of what CAST reads or ACCUMULATE adds to", \
     (CAST, ACCUMULATE)) \
  X (DISTANCE, "distance", "how many ranks further the one is that elements go to; 0: the next", \
     (EXCHANGE))

typedef enum
{
#define X(id, ...) PLAN_MANNER_##id,
  PLAN_MANNER_LIST (X)
#undef X
      PLAN_N_MANNERS
} PlanMannerKey;

typedef struct
{
  double value[PLAN_N_MANNERS];
} PlanManner;

const char *plan_manner_name (PlanMannerKey key);

/* Whether ops of that kind may have the property; and all that they may have, a bit each. */
gboolean plan_manner_is_of (PlanMannerKey key, PlanOpKind kind);
guint32 plan_manner_keys_of (PlanOpKind kind);

G_END_DECLS
