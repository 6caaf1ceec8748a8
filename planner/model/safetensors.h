/* PlanSafetensors: the header of a safetensors file, which says where each tensor lies.
 *
 * The format (huggingface.co/docs/safetensors) is eight bytes with the length of a JSON header,
 * that header, then the data. Only the header is read here. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_SAFETENSORS_PREFIX 8 /* bytes before the header */
#define PLAN_SAFETENSORS_MAX_DIMS 8

typedef struct
{
  char *name;
  PlanDtype dtype; /* PLAN_N_DTYPES: a format that this program does not know */
  guint n_dims;
  guint64 dims[PLAN_SAFETENSORS_MAX_DIMS];
  guint64 begin; /* offset in the file */
  guint64 bytes;
} PlanSafetensor;

typedef struct
{
  GArray *tensors;   /* PlanSafetensor, in the header's order */
  GHashTable *names; /* name -> PlanSafetensor */
} PlanSafetensors;

/* Parses the header; `bytes` is the whole file, possibly mapped. Refuses data that lies outside the
 * file or whose size does not fit its shape. */
PlanSafetensors *plan_safetensors_parse (const guint8 *bytes, gsize size, const char *origin,
                                         GError **error);
void plan_safetensors_free (PlanSafetensors *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanSafetensors, plan_safetensors_free)

const PlanSafetensor *plan_safetensors_find (const PlanSafetensors *self, const char *name);
guint64 plan_safetensor_elements (const PlanSafetensor *self);

/* The name of a number format in such a file; NULL where it has none. */
const char *plan_safetensors_dtype_name (PlanDtype dtype);

G_END_DECLS
