/* Tests of how ranks on NCCL meet: when they are launched, and between steps. */
#pragma once
#include <check.h>

void nccl_add_meeting_tests (TCase *tcase);
