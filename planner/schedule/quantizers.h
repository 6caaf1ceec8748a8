/* Quantiser sites: the places in a layer where GEMM inputs are quantised with a scale from earlier
 * magnitudes, as Transformer Engine's DelayedScaling does (common/recipe/delayed_scaling.cu;
 * history of 1024, scale from the largest magnitude in it, no margin).
 *
 * What two GEMMs read is quantised once: in latent attention, by the site of keys and values.
 *
 * All experts that a rank holds are one site of each kind, so that one scale is that of all their
 * rows; Transformer Engine's GroupedLinear has one for each expert.
 *
 * A site has a scale, and the largest magnitude of each of its last steps, newest first. Everything
 * of a step is quantised with one scale; a new scale is made between the last backward pass and the
 * update, from the magnitudes of all ranks and micro batches. Transformer Engine makes one after
 * each pass of a micro batch; here neither the order of passes nor recompute makes a difference.
 *
 * The sites of all layers lie in one buffer. An op refers to the part of its layer: the reference
 * keeps to that one buffer (PlanRef.modulus is 1) and moves through its elements with the layer. */
#pragma once
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_QUANTIZER_HISTORY 1024 /* --fp8-amax-history-len is emitted with this value */

typedef enum
{
  PLAN_QUANTIZER_INPUT,
  PLAN_QUANTIZER_WEIGHT,
  PLAN_QUANTIZER_GRADIENT, /* of the output; in the format of gradients */
  PLAN_QUANTIZERS_OF_PRODUCT
} PlanQuantizer;

/* Different GEMMs of a model's layers, and the weight of the `product`th. Layers of every kind have
 * sites for all of them. */
guint plan_quantizer_products (const PlanModel *model);
PlanTensorRole plan_quantizer_weight (const PlanModel *model, guint product);

/* The sites of a layer, and the index of one among them, for the GEMM with that weight. */
guint plan_quantizers_of_layer (const PlanModel *model);
guint plan_quantizer_of (const PlanModel *model, PlanTensorRole weight, PlanQuantizer site);

G_END_DECLS
