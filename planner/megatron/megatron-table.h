/* PlanMegatronFlag: Megatron-LM's flags. Those that decide the plan or the model have an id
 * (megatron-flags.h); all others have a class only (data/megatron-flags.txt). */
#pragma once
#include "planner/megatron/megatron-flags.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
#define X(id, key, flag, type, initial, choices) PLAN_MEGATRON_##id,
  PLAN_MEGATRON_FLAG_LIST (X)
#undef X
      PLAN_MEGATRON_N_FLAGS
} PlanMegatronFlag;

typedef enum
{
  PLAN_MEGATRON_TYPE_ON,
  PLAN_MEGATRON_TYPE_OFF,
  PLAN_MEGATRON_TYPE_INT,
  PLAN_MEGATRON_TYPE_REAL,
  PLAN_MEGATRON_TYPE_TEXT,
  PLAN_MEGATRON_TYPE_WORD,
  PLAN_MEGATRON_TYPE_LIST,
} PlanMegatronType;

typedef enum
{
  PLAN_MEGATRON_CLASS_USED,    /* `flag` is its id */
  PLAN_MEGATRON_CLASS_IGNORED, /* logging, data, checkpoints, learning rates */
  PLAN_MEGATRON_CLASS_NOTED,   /* `reason` says what is not modelled */
  PLAN_MEGATRON_CLASS_REFUSED, /* `reason` says why */
  PLAN_MEGATRON_CLASS_UNKNOWN,
} PlanMegatronClass;

/* How many values follow a flag without an id. */
typedef enum
{
  PLAN_MEGATRON_ARITY_NONE,
  PLAN_MEGATRON_ARITY_ONE,
  PLAN_MEGATRON_ARITY_MANY,
} PlanMegatronArity;

typedef struct
{
  PlanMegatronClass class;
  PlanMegatronFlag flag;
  PlanMegatronArity arity;
  const char *reason;
  const char *initial; /* default as a log shows it; NULL for None */
} PlanMegatronFlagInfo;

/* Looks up "num-layers" as a flag, or "num_layers" as a line of a log. */
PlanMegatronFlagInfo plan_megatron_flag_find (const char *flag);
PlanMegatronFlagInfo plan_megatron_key_find (const char *key);

/* "did you mean '...'?" where a known flag is close, else ""; the caller frees. */
char *plan_megatron_flag_suggest (const char *flag);

/* Facts of a flag with an id: "--num-layers", "num_layers", its type, default and choices. */
const char *plan_megatron_flag_name (PlanMegatronFlag flag);
const char *plan_megatron_flag_key (PlanMegatronFlag flag);
PlanMegatronType plan_megatron_flag_type (PlanMegatronFlag flag);
const char *plan_megatron_flag_initial (PlanMegatronFlag flag);
const char *plan_megatron_flag_choices (PlanMegatronFlag flag);

G_END_DECLS
