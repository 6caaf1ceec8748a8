/* How one layer, and the parameters around the layers, become ops of either pass. */
#pragma once
#include "planner/lower/lower-private.h"
#include "planner/schedule/quantizers.h"
G_BEGIN_DECLS

/* How a layer is run: by which graph, and what its forward pass leaves for the backward pass; the
 * rest is computed again. */
typedef struct
{
  PlanNodeSet again;    /* computed again in the backward pass */
  guint16 kind;         /* of layer: whose graph */
  guint16 is_module;    /* it is a prediction module's */
  gboolean drops_input; /* it is computed again with the unit before */
} PlanLowerKeep;

/* Whether a value lies in one buffer that stays. */
gboolean plan_lower_is_static (const PlanLower *self, PlanValueId id);

/* What a layer keeps; all of it, where nothing is computed again. */
PlanLowerKeep plan_lower_keep (const PlanLower *self, gint64 layer);
PlanLowerKeep plan_lower_keep_all (const PlanLower *self, gint64 layer);

/* Which values the forward pass leaves behind. */
PlanValueSet plan_lower_kept (const PlanLower *self, PlanLowerKeep keep);

/* One layer's graph, forwards; backwards, with what has to be computed again. */
void plan_lower_layer_forward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep);
void plan_lower_layer_backward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep);

/* The weight as a product reads it: forwards, or over its other dimension. */
PlanRef plan_lower_product_weight (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit,
                                   gboolean is_backward, gint64 *out_layout);

/* Transposes of the unit's weights: made by one pass over it, dropped with the weights. */
void plan_lower_transpose_weight (PlanLower *self, const PlanNode *node, PlanLowerUnit unit);
void plan_lower_drop_transposes (PlanLower *self, const PlanLayerGraph *net);

/* Where quantised weights live for one product only, both forms are made for it. */
void plan_lower_quantise_weight (PlanLower *self, const PlanNode *node, PlanLowerUnit unit);
void plan_lower_drop_quantised_weight (PlanLower *self, const PlanNode *node);

/* out[rows, cols] of in[rows, depth]. */
typedef struct
{
  PlanRef out, in, weight, bias;
  gint64 rows, cols, depth, layout;
} PlanLowerProduct;

/* Whether products go on in pieces beside the communication of their tensor-parallel group, and
 * whether that one does which reads the gradient of its sum; what is used in pieces is declared. */
gboolean plan_lower_has_pieces (const PlanLower *self);
gboolean plan_lower_gathers_gradient (const PlanLower *self, const PlanNode *linear);
void plan_lower_declare_pieces (PlanLower *self);

/* Where this rank's part of a gathered buffer begins. */
guint64 plan_lower_own_part (const PlanLower *self, guint64 elements);

/* A product of what is gathered of every rank's `own` rows; one whose sum is scattered. Compute is
 * behind them. */
void plan_lower_gathered_product (PlanLower *self, const PlanLowerProduct *product, PlanRef own);
void plan_lower_reduced_product (PlanLower *self, const PlanLowerProduct *product, PlanRef sum);

/* What the library that sends tokens takes for itself, outside any allocator's memory. */
guint64 plan_lower_dispatch_bytes (const PlanLower *self);

/* Leaves what the backward pass reads in out, lse and qkv; that one takes dqkv. */
void plan_lower_declare_attention (PlanLower *self);

/* Batch, seq, heads, kv_heads, head_dim of a rank's attention ops; and what cuDNN said of them. */
const gint64 *plan_lower_attention_dims (const PlanLower *self, gint64 *out_dims);
const PlanWorkspace *plan_lower_asked_attention (const PlanLower *self, PlanPass pass);
gboolean plan_lower_attention_is_fused (const PlanLower *self, PlanOpKind kind);

/* Elements that the backward pass of attention works in: as cuDNN said, or by the rule of what it
 * says, or, where it has none, by that of our own. */
guint64 plan_lower_attention_work (const PlanLower *self);

/* `keys`: see PlanLayerGraph. */
void plan_lower_attention (PlanLower *self, PlanRef out, PlanRef lse, PlanRef qkv, gint64 keys);
void plan_lower_attention_backward (PlanLower *self, PlanRef dqkv, PlanRef dout, PlanRef out,
                                    PlanRef lse, PlanRef qkv, gint64 keys);

/* `feeds`: whose product reads what it leaves in the format of products; else PLAN_N_TENSORS. */
void plan_lower_norm (PlanLower *self, PlanRef out, PlanRef stats, PlanRef in,
                      PlanTensorRole weight, PlanTensorRole bias, PlanTensorRole feeds,
                      PlanLowerUnit unit, gint64 rows);
void plan_lower_norm_backward (PlanLower *self, PlanRef din, PlanRef dout, PlanRef in,
                               PlanRef stats, PlanTensorRole weight, PlanTensorRole bias,
                               PlanLowerUnit unit, gint64 rows);

/* refs: out, stats, sum, and the two that are added up; din, dout, in, stats, and what is added. */
void plan_lower_add_norm (PlanLower *self, const PlanRef *refs, const PlanNode *norm,
                          PlanLowerUnit unit);
void plan_lower_norm_backward_add (PlanLower *self, const PlanRef *refs, PlanTensorRole weight,
                                   PlanTensorRole bias, PlanLowerUnit unit, gint64 rows);

/* The scale by which one site of a layer quantises, and what it has seen in this step; and those of
 * all of a layer's. None where scales are of what is quantised. */
PlanRef plan_lower_site_scale (const PlanLower *self, PlanTensorRole weight, PlanQuantizer site,
                               PlanLowerUnit unit);
PlanRef plan_lower_site_amax (const PlanLower *self, PlanTensorRole weight, PlanQuantizer site,
                              PlanLowerUnit unit);
PlanRef plan_lower_layer_scales (const PlanLower *self, PlanLowerUnit unit);
PlanRef plan_lower_layer_amax (const PlanLower *self, PlanLowerUnit unit);

/* refs: what becomes the factor of the product with that weight, transposed, and of what. */
void plan_lower_quantise (PlanLower *self, PlanTensorRole weight, PlanQuantizer site,
                          PlanLowerUnit unit, const PlanRef *refs, gint64 rows, gint64 cols);

/* Makes room for the gradient of a parameter and says where a kernel writes it; put_gradient then
 * moves it to where it accumulates or is reduced. `adds`: that holds a share of it already. */
PlanRef plan_lower_raw_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);
void plan_lower_put_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit,
                              gboolean adds);

/* out[cols, depth] of the weight: from dout[rows, cols] and in[rows, depth], into its bucket. */
void plan_lower_weight_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit,
                                 PlanRef dout, PlanRef in, gint64 rows, gint64 cols, gint64 depth,
                                 gint64 layout);

/* The same of all experts' weights of a node. refs: dout, in, and how many rows each has. */
void plan_lower_expert_weight_gradient (PlanLower *self, const PlanNode *node, PlanLowerUnit unit,
                                        const PlanRef *refs);

/* The gradient of a weight as the sum of several products: added up where it belongs if that is in
 * fp32, else in a buffer in fp32 that is moved once it is whole. */
typedef struct
{
  PlanTensorRole role;
  PlanRef out;
  gboolean adds;  /* the next product, to what is there */
  gboolean moves; /* what is there belongs elsewhere */
} PlanLowerSum;

/* Whether sums take a buffer of their own. */
gboolean plan_lower_moves_sums (const PlanLower *self);

/* Of a weight that is no unit's; `dims` of a product are its op's. */
PlanLowerSum plan_lower_begin_sum (PlanLower *self, PlanTensorRole role);
void plan_lower_add_product (PlanLower *self, PlanLowerSum *sum, PlanRef dout, PlanRef in,
                             const gint64 *dims);
void plan_lower_end_sum (PlanLower *self, const PlanLowerSum *sum);

/* The forward pass of a unit, once its weights are there. */
void plan_lower_unit_forward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep);

G_END_DECLS
