/* Random pipelines, of the frameworks that have them: a case, and schedules and costs by stage. */
#pragma once
#include "sim/cost/cost.h"
#include "tests/case.h"
#include <check.h>
G_BEGIN_DECLS

#define MOST_STAGES 16

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of;
  guint n;
  PlanSchedule *schedules[MOST_STAGES];
  SimCost *costs[MOST_STAGES];
} Pipeline;

/* Makes the first legal pipeline from that seed on. Odd seeds have models so wide that a product
 * takes longer than the host needs to issue it. Some have an output layer that costs more than a
 * stage, so that nanotron puts the loss, or the cast of logits to fp32, on a stage by itself. */
void pipeline_init (Pipeline *self, guint seed, gboolean is_interleaved);
void pipeline_clear (Pipeline *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Pipeline, pipeline_clear)

/* Writes a layout string of n virtual stages in one of its many forms; the caller frees. */
char *pipeline_layout_text (const gint64 *layers, guint n, gint64 modules, GRand *rand);

#define MOST_PASSES 512

/* A pass of a micro batch over one of its stage's virtual stages. */
typedef struct
{
  gboolean is_backward;
  gint64 virtual_stage, micro_batch;
} Pass;

/* Writes down the passes of one direction as Megatron-LM's schedules.py describes them: group by
 * group, virtual stage by virtual stage, micro batch by micro batch. Returns how many there are. */
guint pipeline_passes (gint64 m, gint64 group, gint64 n_virtual, gboolean is_backward, Pass *out);

G_END_DECLS
