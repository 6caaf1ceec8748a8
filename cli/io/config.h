/* The user's file of defaults, $XDG_CONFIG_HOME/fsdplan/config.ini: lines KEY=VALUE, each in place
 * of an option that a command line leaves out. It is read when the first default is asked for;
 * without a file there are none. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* X (ENUM, "key", "what it is"). */
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

/* Sets *text, if it is NULL and the file says what it is; the caller frees it. FALSE when the file
 * is not as it should be. */
gboolean cli_config_default (CliConfigKey key, char **text, GError **error);

/* A line on standard error for each default that was taken: an error may be its fault. */
void cli_config_report (void);

G_END_DECLS
