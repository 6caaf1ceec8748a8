/* ep_overlap: the forward pass of a micro batch beside the backward pass of an earlier one. */
#pragma once
#include "planner/lower/lower-acts.h"
#include "planner/plan/stages.h"
G_BEGIN_DECLS

/* Decides for how many micro batches activations are held at once (`rows`), and whether passes are
 * combined. */
void plan_lower_take_rows (PlanLower *self);

/* Lowers all micro batches of a step without a pipeline. */
void plan_lower_combined (PlanLower *self);

/* A forward pass and a backward pass that run beside each other. They are lowered in three parts:
 * what stands before the layers; all layers, after which the output and the gradient of the input
 * are there and may be sent; and the rest, with weight gradients that were delayed. The last part
 * frees the pair. */
typedef struct _PlanLowerPair PlanLowerPair;
PlanLowerPair *plan_lower_begin_pair (PlanLower *self, PlanStagePass ahead, PlanStagePass back);
void plan_lower_pair_layers (PlanLowerPair *self);
void plan_lower_end_pair (PlanLowerPair *self);

/* All three, with nothing between them. */
void plan_lower_pair (PlanLower *self, PlanStagePass ahead, PlanStagePass back);

/* Makes quantised copies of the weights of a layer's nodes [from, end): once per step, where
 * weights are gathered unquantised. */
void plan_lower_copy_weights (PlanLower *self, PlanLowerUnit unit, const PlanLayerGraph *net,
                              guint from, guint end);

/* The parts of a pass that stand before the layers and after them. */
void plan_lower_begin_forward (PlanLower *self);
void plan_lower_end_forward (PlanLower *self);

/* A backward pass: the reductions that are under way, and the order of what it does. */
typedef struct
{
  gboolean is_last;         /* it is of the step's last micro batch */
  gboolean reduces, queues; /* gradients are reduced; their buckets are in a queue */
  gboolean together;        /* all are reduced after it */
  gboolean head_waits;      /* the head's bucket is complete only with the embedding's */
  gint64 *in_flight;
  guint64 *elements;
  PlanLowerQueue queue;
  PlanLowerOrder order;
  guint run, at; /* the next act, if acts are carried out up to one layer after another: its run, */
  gint64 turn;   /* its place there, and the turn of the run */
} PlanLowerBackward;

void plan_lower_begin_backward (PlanLower *self, PlanLowerBackward *back, gboolean is_last);
void plan_lower_end_backward (PlanLower *self, PlanLowerBackward *back); /* clears `back` */

/* Carries out acts up to the next layer's backward pass, which is the caller's to lower, or up to
 * the end. */
void plan_lower_run_to_layer (PlanLower *self, PlanLowerBackward *back);

G_END_DECLS
