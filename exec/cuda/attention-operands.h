/* Short names of attention's operands, for the files that launch it. */
#pragma once
#include "planner/schedule/op.h"

enum
{
  OUT = PLAN_REF_ATTENTION_out,
  LSE = PLAN_REF_ATTENTION_lse,
  QKV = PLAN_REF_ATTENTION_qkv,
  WORK = PLAN_REF_ATTENTION_work,
  KV = PLAN_REF_ATTENTION_kv,

  BWD_DQKV = PLAN_REF_ATTENTION_BWD_dqkv,
  BWD_DOUT = PLAN_REF_ATTENTION_BWD_dout,
  BWD_OUT = PLAN_REF_ATTENTION_BWD_out,
  BWD_LSE = PLAN_REF_ATTENTION_BWD_lse,
  BWD_QKV = PLAN_REF_ATTENTION_BWD_qkv,
  BWD_WORK = PLAN_REF_ATTENTION_BWD_work,
  BWD_KV = PLAN_REF_ATTENTION_BWD_kv,
};
