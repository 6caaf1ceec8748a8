/* PlanMegatronSettings: the values that a command line, or the argument list of a log, sets for
 * each flag, before they are given a meaning. Switches are "on" and "off"; words of lists are
 * joined by blanks. */
#pragma once
#include "planner/megatron/megatron-table.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_MEGATRON_NOTE,    /* not modelled, or worth knowing */
  PLAN_MEGATRON_WARNING, /* it runs, but does not do what it seems to */
  PLAN_MEGATRON_ERROR,   /* Megatron-LM refuses it */
} PlanMegatronSeverity;

typedef struct
{
  guint line; /* 0: about the whole text */
  char *flag; /* "--num-layers"; NULL where no flag is meant */
  char *text;
  PlanMegatronSeverity severity;
} PlanMegatronNote;

GPtrArray *plan_megatron_notes_new (void);

void plan_megatron_notes_add (GPtrArray *notes, PlanMegatronSeverity severity, guint line,
                              const char *flag, const char *format, ...) G_GNUC_PRINTF (5, 6);

typedef struct
{
  char *value; /* NULL: not given */
  const char *initial;
  guint line;
} PlanMegatronSetting;

typedef struct
{
  PlanMegatronSetting of[PLAN_MEGATRON_N_FLAGS];
  GHashTable *environment; /* exported variables; NULL for a log, which does not show them */
  gint64 nodes, devices;   /* 0 where the text does not state them */
  gint64 padded_vocab;     /* from a log's own line; 0 without one */
  gboolean is_log;
} PlanMegatronSettings;

void plan_megatron_settings_clear (PlanMegatronSettings *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanMegatronSettings, plan_megatron_settings_clear)

/* Reads a shell script, a command line or a log. Oddities that can still be read are added to
 * `notes`. */
gboolean plan_megatron_settings_read (const char *text, const char *origin, GPtrArray *notes,
                                      PlanMegatronSettings *out_settings, GError **error);

/* Sets a flag; INVALID names `what` where the value is not of the flag's type. */
gboolean plan_megatron_settings_set (PlanMegatronSettings *self, PlanMegatronFlag flag,
                                     const char *value, const char *what, guint line,
                                     GError **error);

gboolean plan_megatron_is_given (const PlanMegatronSettings *self, PlanMegatronFlag flag);

/* The flag's value or else its default; NULL where there is neither. */
const char *plan_megatron_value (const PlanMegatronSettings *self, PlanMegatronFlag flag);

gboolean plan_megatron_is_on (const PlanMegatronSettings *self, PlanMegatronFlag flag);
gboolean plan_megatron_is (const PlanMegatronSettings *self, PlanMegatronFlag flag,
                           const char *value);
gint64 plan_megatron_int (const PlanMegatronSettings *self, PlanMegatronFlag flag); /* 0 if none */
gboolean plan_megatron_list_has (const PlanMegatronSettings *self, PlanMegatronFlag flag,
                                 const char *word);

/* Whether some line begins the argument list that Megatron-LM prints. */
gboolean plan_megatron_is_log (const char *text);

/* Reads the argument list of a log, whatever stands before and between its lines. */
gboolean plan_megatron_log_read (const char *text, const char *origin, GPtrArray *notes,
                                 PlanMegatronSettings *settings, GError **error);

G_END_DECLS
