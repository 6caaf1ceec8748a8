/* The user's defaults, $XDG_CONFIG_HOME/fsdplan/config.ini: lines KEY=VALUE that stand in for
 * options which the command line lacks. The file is read when the first default is asked for and
 * may be absent. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* X (ENUM, "key", "meaning"). */
#define CLI_CONFIG_LIST(X) \
  X (CLUSTER, "cluster", "where neither --cluster nor a plan says it") \
  X (HEADROOM, "headroom", "per cent of a device's memory that stay free") \
  X (PARAMS, "params", "a set of parameters of the cost model, as --params takes it") \
  X (PRICE, "price", "USD per GPU and hour, where a run of so many --tokens is asked for")

typedef enum
{
#define X(name, key, meaning) CLI_CONFIG_##name,
  CLI_CONFIG_LIST (X)
#undef X
      CLI_N_CONFIG
} CliConfigKey;

/* Sets *text to the default for `key` if *text is NULL and the file has one; the caller frees it.
 * FALSE when the file is faulty. */
gboolean cli_config_default (CliConfigKey key, char **text, GError **error);

/* Reports on standard error each default that was used, because an error may be due to it. */
void cli_config_report (void);

G_END_DECLS
