/* PlanLayerBuilder: functions that build the graph of a layer, node by node. */
#pragma once
#include "planner/graph/layer-graph.h"
G_BEGIN_DECLS

/* What building a layer needs to know. */
typedef struct
{
  PlanLayerGraph *graph;
  const PlanSizes *sizes;
  const PlanModel *model;
  gint64 tp, seq;
  gboolean is_nope;          /* this kind of layer has no rotary positions */
  gboolean is_recurrent;     /* it has a state in place of attention */
  gboolean splits;           /* sequence parallel */
  gboolean fuses_norms;      /* norms write the format that GEMMs read */
  gboolean drops;            /* hidden states of branches go through dropout */
  gboolean keeps_masks;      /* of dropout, for the backward pass; else it makes them again */
  gboolean keeps_gate;       /* the activated gate stays for the backward pass */
  gboolean quantises_on_use; /* quantised inputs are made again where they are read, not kept */
  gboolean gathers_first;    /* split inputs are gathered and then quantised, whole on each rank */
  gboolean compiles;         /* torch.compile runs the layer */
  gboolean compiles_parts;   /* see PlanStackLayer */
  gboolean hides_products;   /* so op-by-op recompute knows none of this layer's */
  gboolean keeps_gathered;   /* inputs gathered over the tensor-parallel group stay */
  gboolean pairs_keys;       /* keys and values are kept twice (PLAN_KEYS_PAIRED) */
  gboolean joins_qkv;        /* queries, keys and values are one product (see PlanStackLayer) */
  guint products;            /* of this layer, that op-by-op recompute has counted so far */
  gboolean has_own_kernels; /* our runtime's: maps of rows hold the number of rows of each expert */
  gboolean is_autograd;     /* PyTorch's: rows of experts are moved and weighed by its ops */
  gboolean pads_rows;       /* see PlanStackLayer */
  gboolean waits_for_counts; /* the host waits for these numbers */
  gboolean moves_eagerly;    /* rows are moved op by op */
  gboolean overlaps_shared;  /* shared experts run beside the sending of rows */
  PlanValueId shared_in, shared_in_kept, shared_out; /* of shared experts: what their products read,
                                                        forwards and backwards; their output */
  PlanValueId norm_read,
      norm_kept; /* of a norm that both branches share: what GEMMs read, forwards and backwards */
  PlanValueId probs, routes;  /* the router's probabilities and map of tokens to experts, without
                                 dropped tokens */
  gint64 ep, etp, dispatcher; /* dispatcher in use; not a library where ep is 1 */
} PlanLayerBuilder;

/* Sets the size and format of a value. */
void plan_layer_define (PlanLayerGraph *self, PlanValueId id, gint64 elements, PlanDtype dtype);

/* Adds a node that reads `in` and makes `out`; everything else is unset. */
PlanNode *plan_layer_add (PlanLayerGraph *self, PlanNodeKind kind, PlanModule module,
                          PlanValueId in, PlanValueId out);

void plan_layer_add_norm (PlanLayerBuilder *b, PlanModule module, PlanValueId in, PlanValueId out,
                          PlanValueId stats, PlanTensorRole weight, PlanTensorRole bias,
                          PlanTensorRole feeds);

/* Adds what lies between a value and the GEMMs that read it: quantising where they are quantised,
 * and before or behind it an all-gather where tokens are split. Returns what the GEMMs read;
 * `out_kept` is what their weight gradients read. `v` names the forms of the value: itself, its two
 * quantised and its two gathered ones. */
PlanValueId plan_layer_add_product_input (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                                          const PlanValueId *v, PlanTensorRole feeds, gint64 width,
                                          PlanValueId *out_kept);

/* Adds the all-gathers of a value whose tokens are split. `v` names its gathered forms. */
PlanValueId plan_layer_add_gathers (PlanLayerBuilder *b, PlanModule module, PlanValueId read,
                                    PlanValueId kept, const PlanValueId *v, gint64 width,
                                    PlanValueId *out_kept);

void plan_layer_add_linear (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                            PlanValueId kept, PlanValueId out, PlanTensorRole weight,
                            PlanTensorRole bias, gint64 cols, gint64 depth);

/* Adds a node of a mixer (linear attention, a state space) on all rows; defines a value of so many
 * columns for each row, in the format of activations. */
static inline PlanNode *
plan_layer_add_mixer (PlanLayerBuilder *b, PlanNodeKind kind, PlanValueId in, PlanValueId out)
{
  PlanNode *node = plan_layer_add (b->graph, kind, PLAN_MODULE_OTHER, in, out);
  node->rows = b->sizes->rows;
  return node;
}

static inline void
plan_layer_define_rows (PlanLayerBuilder *b, PlanValueId id, gint64 cols)
{
  plan_layer_define (b->graph, id, b->sizes->rows * cols, b->sizes->compute);
}

/* Notes what op-by-op recompute keeps of the product just added: of all products of a layer that
 * have no bias, every second one, from the first on. A framework may make one product as several,
 * of so many columns each; `parts` ends with 0. `saved`: the value of those columns. */
void plan_layer_save_product (PlanLayerBuilder *b, PlanValueId saved, const gint64 *parts);
void plan_layer_save_whole_product (PlanLayerBuilder *b); /* the same of one in one piece */

/* Adds quantising of `in` as `out` and, transposed, as `col`. Returns what the forward GEMM reads;
 * `out_kept` is what the backward one reads. Both are `in` where nothing is quantised. */
PlanValueId plan_layer_add_quantize (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                                     PlanValueId out, PlanValueId col, PlanTensorRole feeds,
                                     gint64 rows, gint64 cols, PlanValueId *out_kept);

/* As plan_layer_add_quantize, and the linear layer that reads it. */
void plan_layer_add_quantised_linear (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                                      PlanValueId q, PlanValueId col, PlanValueId out,
                                      PlanTensorRole weight, gint64 cols, gint64 depth);

/* Adds the sum over the tensor-parallel group, then the norm behind the branch if there is one.
 * Returns the branch's output. */
PlanValueId plan_layer_add_branch_end (PlanLayerBuilder *b, PlanModule module, PlanValueId branch,
                                       PlanValueId sum, PlanValueId post, PlanValueId stats,
                                       PlanTensorRole weight);

/* Adds linear attention by the gated delta rule, from the norm of x to the projection of its
 * output, for sequences of `seq` tokens. `x` names the forms of that norm. */
void plan_layer_add_delta (PlanLayerBuilder *b, const PlanValueId *x, gint64 seq);

/* The same of a state space. */
void plan_layer_add_ssm (PlanLayerBuilder *b, const PlanValueId *x, gint64 seq);

/* Adds latent attention, from the norm of x to attention's output. `x` names the forms of that
 * norm. */
void plan_layer_add_latent_attention (PlanLayerBuilder *b, const PlanValueId *x);

/* Adds the experts branch in place of an MLP, from its norm on. Returns the branch's output. */
PlanValueId plan_layer_add_experts_branch (PlanLayerBuilder *b, PlanValueId in);

/* Notes for each node what it reads, what it makes, and what its backward pass needs. */
void plan_layer_list_values (PlanLayerGraph *self);

/* Finds what a CUDA graph holds of a layer (graph_modules). */
void plan_layer_find_captured (PlanLayerGraph *self, guint kind, const Plan *plan,
                               const PlanModel *model);

G_END_DECLS
