/* Lowers one layer, and the parameters outside the layers, to ops of either pass. */
#pragma once
#include "planner/lower/lower-private.h"
#include "planner/schedule/quantizers.h"
G_BEGIN_DECLS

/* Says which graph a layer has, and which of its nodes the backward pass recomputes. */
typedef struct
{
  PlanNodeSet again;    /* nodes that are recomputed */
  guint16 kind;         /* kind of layer: whose graph */
  guint16 is_module;    /* the layer is a prediction module's */
  gboolean drops_input; /* the layer's input is recomputed, too */
} PlanLowerKeep;

/* Whether a value of all layers lies in one buffer that is never freed. */
gboolean plan_lower_is_static (const PlanLower *self, PlanValueId id);

/* What a layer keeps for its backward pass; keep_all: all, nothing is recomputed. */
PlanLowerKeep plan_lower_keep (const PlanLower *self, gint64 layer);
PlanLowerKeep plan_lower_keep_all (const PlanLower *self, gint64 layer);

/* The values that the forward pass leaves behind. */
PlanValueSet plan_lower_kept (const PlanLower *self, PlanLowerKeep keep);

/* Lowers one layer's forward pass; its backward pass, with the recompute that it needs. */
void plan_lower_layer_forward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep);
void plan_lower_layer_backward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep);

/* The weight as a product reads it: forward, or transposed for the gradient of its input. */
PlanRef plan_lower_product_weight (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit,
                                   gboolean is_backward, gint64 *out_layout);

/* The matrices of a product's weight. Makes their transposes; frees all of the unit in use. */
gint64 plan_lower_matrices (const PlanLower *self, const PlanNode *node);
void plan_lower_transpose_weight (PlanLower *self, const PlanNode *node, PlanLowerUnit unit);
void plan_lower_drop_transposes (PlanLower *self, const PlanLayerGraph *net);
/* Quantises a weight for one product, if copies live only so long; frees those copies. */
void plan_lower_quantise_weight (PlanLower *self, const PlanNode *node, PlanLowerUnit unit);
void plan_lower_drop_quantised_weight (PlanLower *self, const PlanNode *node);

/* A product out[rows, cols] of in[rows, depth]. */
typedef struct
{
  PlanRef out, in, weight, bias;
  gint64 rows, cols, depth, layout;
} PlanLowerProduct;

/* Whether products of a tensor-parallel group run piece by piece beside its communication
 * (tp_overlap); so inputs quantised in parts, gradients of summed outputs, of gathered inputs. */
gboolean plan_lower_has_pieces (const PlanLower *self);
gboolean plan_lower_quantises_parts (const PlanLower *self);
gboolean plan_lower_gathers_gradient (const PlanLower *self, const PlanNode *linear);
gboolean plan_lower_sums_gradient (const PlanLower *self);
void plan_lower_declare_pieces (PlanLower *self);

/* The element at which this rank's part of a gathered buffer begins. */
guint64 plan_lower_own_part (const PlanLower *self, guint64 elements);

/* A product whose input is gathered from every rank's `own` rows meanwhile; one whose output is
 * reduce-scattered to `sum` meanwhile. Compute then waits for the communication. */
void plan_lower_gathered_product (PlanLower *self, const PlanLowerProduct *product, PlanRef own);
void plan_lower_reduced_product (PlanLower *self, const PlanLowerProduct *product, PlanRef sum);

/* Bytes that the library which dispatches tokens (DeepEP, HybridEP) takes beside all allocators. */
guint64 plan_lower_dispatch_bytes (const PlanLower *self);

/* Attention's forward pass leaves out, lse and qkv; the backward pass allocates dqkv. */
void plan_lower_declare_attention (PlanLower *self);

/* Dims of a rank's attention: batch, seq, heads, kv_heads, head_dim. What cuDNN said of it. */
const gint64 *plan_lower_attention_dims (const PlanLower *self, gint64 *out_dims);
const PlanWorkspace *plan_lower_asked_attention (const PlanLower *self, PlanPass pass);
const gint64 *plan_lower_latent_dims (const PlanLower *self, gint64 *out_dims);
gboolean plan_lower_attention_is_fused (const PlanLower *self, PlanOpKind kind);

/* Elements of attention's workspace backwards: cuDNN's word, our kernel's, or a fitted rule. */
guint64 plan_lower_attention_work (const PlanLower *self);

/* refs: out, lse, qkv, and the layer's key of random numbers; backwards dqkv and dout before these.
 * `keys`: see PlanLayerGraph. */
void plan_lower_attention (PlanLower *self, const PlanRef *refs, gint64 keys);
void plan_lower_attention_backward (PlanLower *self, const PlanRef *refs, gint64 keys);

/* `feeds`: the weight whose GEMM reads the output, if the norm quantises it, or PLAN_N_TENSORS. */
void plan_lower_norm (PlanLower *self, PlanRef out, PlanRef stats, PlanRef in,
                      PlanTensorRole weight, PlanTensorRole bias, PlanTensorRole feeds,
                      PlanLowerUnit unit, gint64 rows);
void plan_lower_norm_backward (PlanLower *self, PlanRef din, PlanRef dout, PlanRef in,
                               PlanRef stats, PlanTensorRole weight, PlanTensorRole bias,
                               PlanLowerUnit unit, gint64 rows);

/* refs: out, stats, sum, and its two addends. Backward: din, dout, in, stats, what din adds to. */
void plan_lower_add_norm (PlanLower *self, const PlanRef *refs, const PlanNode *norm,
                          PlanLowerUnit unit);
void plan_lower_norm_backward_add (PlanLower *self, const PlanRef *refs, PlanTensorRole weight,
                                   PlanTensorRole bias, PlanLowerUnit unit, gint64 rows);

/* Delayed scaling: the scale of one site of a layer, and the largest magnitude that it has seen in
 * this step; those of all sites of a layer. None with other ways of scaling. */
PlanRef plan_lower_site_scale (const PlanLower *self, PlanTensorRole weight, PlanQuantizer site,
                               PlanLowerUnit unit);
PlanRef plan_lower_site_amax (const PlanLower *self, PlanTensorRole weight, PlanQuantizer site,
                              PlanLowerUnit unit);
PlanRef plan_lower_layer_scales (const PlanLower *self, PlanLowerUnit unit);
PlanRef plan_lower_layer_amax (const PlanLower *self, PlanLowerUnit unit);

/* refs: the quantised input of a site, its transposed copy, and what they are made from. */
void plan_lower_quantise (PlanLower *self, PlanTensorRole weight, PlanQuantizer site,
                          PlanLowerUnit unit, const PlanRef *refs, gint64 rows, gint64 cols);

/* Allocates a buffer for a parameter's gradient, which a kernel then writes; put_gradient moves it
 * to where it accumulates or is reduced. `adds`: a share of it is there already. */
PlanRef plan_lower_raw_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);
void plan_lower_put_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit,
                              gboolean adds);

/* The gradient [cols, depth] of a weight, from dout[rows, cols] and in[rows, depth]. */
void plan_lower_weight_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit,
                                 PlanRef dout, PlanRef in, gint64 rows, gint64 cols, gint64 depth,
                                 gint64 layout);

/* The same for the weights of all experts. refs: dout, in, rows of each expert. */
void plan_lower_expert_weight_gradient (PlanLower *self, const PlanNode *node, PlanLowerUnit unit,
                                        const PlanRef *refs);

/* A weight's gradient that is the sum of several products: summed in place if it accumulates in
 * fp32 there, else in a buffer of its own that is moved at the end. */
typedef struct
{
  PlanTensorRole role;
  PlanRef out;
  gboolean adds;  /* the next product is added to what is there */
  gboolean moves; /* it is summed in a buffer of its own */
} PlanLowerSum;

/* Whether sums have a buffer of their own. */
gboolean plan_lower_moves_sums (const PlanLower *self);

/* For a weight outside the layers. `dims`: of the GEMM. */
PlanLowerSum plan_lower_begin_sum (PlanLower *self, PlanTensorRole role);
void plan_lower_add_product (PlanLower *self, PlanLowerSum *sum, PlanRef dout, PlanRef in,
                             const gint64 *dims);
void plan_lower_end_sum (PlanLower *self, const PlanLowerSum *sum);

/* The forward pass of a unit, which waits for its weights first. */
void plan_lower_unit_forward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep);

G_END_DECLS
