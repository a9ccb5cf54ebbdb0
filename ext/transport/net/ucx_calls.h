/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_calls.h - the functions of UCX that the net calls, and the facts about its structures that it relies on.
 *
 * CALL(result, name, arguments), FACT(what, value): with our own declarations (ucx_api.h), or with UCX's in the test.
 */
#pragma once

#include <stdio.h>

#define HC_UCX_CALLS(CALL)                                                                                             \
    CALL(ucs_status_t, ucp_init_version,                                                                               \
         (unsigned, unsigned, const ucp_params_t *, const ucp_config_t *, ucp_context_h *))                            \
    CALL(void, ucp_cleanup, (ucp_context_h))                                                                           \
    CALL(const char *, ucp_get_version_string, (void))                                                                 \
    CALL(void, ucp_get_version, (unsigned *, unsigned *, unsigned *))                                                  \
    CALL(ucs_status_t, ucp_config_read, (const char *, const char *, ucp_config_t **))                                 \
    CALL(ucs_status_t, ucp_config_modify, (ucp_config_t *, const char *, const char *))                                \
    CALL(void, ucp_config_release, (ucp_config_t *))                                                                   \
    CALL(void, ucp_context_print_info, (const ucp_context_h, FILE *))                                                  \
    CALL(ucs_status_t, ucp_worker_create, (ucp_context_h, const ucp_worker_params_t *, ucp_worker_h *))                \
    CALL(void, ucp_worker_destroy, (ucp_worker_h))                                                                     \
    CALL(ucs_status_t, ucp_worker_get_address, (ucp_worker_h, ucp_address_t **, size_t *))                             \
    CALL(void, ucp_worker_release_address, (ucp_worker_h, ucp_address_t *))                                            \
    CALL(unsigned, ucp_worker_progress, (ucp_worker_h))                                                                \
    CALL(ucs_status_t, ucp_ep_create, (ucp_worker_h, const ucp_ep_params_t *, ucp_ep_h *))                             \
    CALL(ucs_status_ptr_t, ucp_ep_close_nbx, (ucp_ep_h, const ucp_request_param_t *))                                  \
    CALL(ucs_status_ptr_t, ucp_tag_send_nbx, (ucp_ep_h, const void *, size_t, ucp_tag_t, const ucp_request_param_t *)) \
    CALL(ucs_status_ptr_t, ucp_tag_recv_nbx,                                                                           \
         (ucp_worker_h, void *, size_t, ucp_tag_t, ucp_tag_t, const ucp_request_param_t *))                            \
    CALL(ucs_status_t, ucp_request_check_status, (void *))                                                             \
    CALL(void, ucp_request_cancel, (ucp_worker_h, void *))                                                             \
    CALL(void, ucp_request_free, (void *))                                                                             \
    CALL(const char *, ucs_status_string, (ucs_status_t))

#define HC_UCX_FACTS(FACT)                                                              \
    FACT("ucp_params_t.features", offsetof(ucp_params_t, features))                     \
    FACT("ucp_params_t.tag_sender_mask", offsetof(ucp_params_t, tag_sender_mask))       \
    FACT("ucp_params_t.estimated_num_eps", offsetof(ucp_params_t, estimated_num_eps))   \
    FACT("ucp_worker_params_t.thread_mode", offsetof(ucp_worker_params_t, thread_mode)) \
    FACT("ucp_worker_params_t.client_id", offsetof(ucp_worker_params_t, client_id))     \
    FACT("ucp_ep_params_t.address", offsetof(ucp_ep_params_t, address))                 \
    FACT("ucp_ep_params_t.err_mode", offsetof(ucp_ep_params_t, err_mode))               \
    FACT("ucp_ep_params_t.err_handler", offsetof(ucp_ep_params_t, err_handler))         \
    FACT("ucp_ep_params_t.local_sockaddr", offsetof(ucp_ep_params_t, local_sockaddr))   \
    FACT("ucp_tag_recv_info_t.length", offsetof(ucp_tag_recv_info_t, length))           \
    FACT("sizeof ucp_tag_recv_info_t", sizeof(ucp_tag_recv_info_t))                     \
    FACT("ucp_request_param_t.flags", offsetof(ucp_request_param_t, flags))             \
    FACT("ucp_request_param_t.cb", offsetof(ucp_request_param_t, cb))                   \
    FACT("ucp_request_param_t.user_data", offsetof(ucp_request_param_t, user_data))     \
    FACT("ucp_request_param_t.memory_type", offsetof(ucp_request_param_t, memory_type)) \
    FACT("ucp_request_param_t.recv_info", offsetof(ucp_request_param_t, recv_info))     \
    FACT("sizeof ucp_request_param_t", sizeof(ucp_request_param_t))                     \
    FACT("sizeof ucs_status_t", sizeof(ucs_status_t))                                   \
    FACT("UCS_OK", UCS_OK)                                                              \
    FACT("UCS_INPROGRESS", UCS_INPROGRESS)                                              \
    FACT("UCS_ERR_NO_MEMORY", UCS_ERR_NO_MEMORY)                                        \
    FACT("UCS_ERR_MESSAGE_TRUNCATED", UCS_ERR_MESSAGE_TRUNCATED)                        \
    FACT("UCS_ERR_CANCELED", UCS_ERR_CANCELED)                                          \
    FACT("UCS_ERR_LAST", UCS_ERR_LAST)                                                  \
    FACT("UCS_THREAD_MODE_SERIALIZED", UCS_THREAD_MODE_SERIALIZED)                      \
    FACT("UCS_MEMORY_TYPE_HOST", UCS_MEMORY_TYPE_HOST)                                  \
    FACT("UCP_FEATURE_TAG", UCP_FEATURE_TAG)                                            \
    FACT("UCP_PARAM_FIELD_FEATURES", UCP_PARAM_FIELD_FEATURES)                          \
    FACT("UCP_PARAM_FIELD_TAG_SENDER_MASK", UCP_PARAM_FIELD_TAG_SENDER_MASK)            \
    FACT("UCP_PARAM_FIELD_ESTIMATED_NUM_EPS", UCP_PARAM_FIELD_ESTIMATED_NUM_EPS)        \
    FACT("UCP_WORKER_PARAM_FIELD_THREAD_MODE", UCP_WORKER_PARAM_FIELD_THREAD_MODE)      \
    FACT("UCP_EP_PARAM_FIELD_REMOTE_ADDRESS", UCP_EP_PARAM_FIELD_REMOTE_ADDRESS)        \
    FACT("UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE", UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE)  \
    FACT("UCP_EP_PARAM_FIELD_ERR_HANDLER", UCP_EP_PARAM_FIELD_ERR_HANDLER)              \
    FACT("UCP_ERR_HANDLING_MODE_NONE", UCP_ERR_HANDLING_MODE_NONE)                      \
    FACT("UCP_ERR_HANDLING_MODE_PEER", UCP_ERR_HANDLING_MODE_PEER)                      \
    FACT("UCP_EP_CLOSE_FLAG_FORCE", UCP_EP_CLOSE_FLAG_FORCE)                            \
    FACT("UCP_OP_ATTR_FIELD_CALLBACK", UCP_OP_ATTR_FIELD_CALLBACK)                      \
    FACT("UCP_OP_ATTR_FIELD_USER_DATA", UCP_OP_ATTR_FIELD_USER_DATA)                    \
    FACT("UCP_OP_ATTR_FIELD_FLAGS", UCP_OP_ATTR_FIELD_FLAGS)                            \
    FACT("UCP_OP_ATTR_FIELD_MEMORY_TYPE", UCP_OP_ATTR_FIELD_MEMORY_TYPE)                \
    FACT("UCP_OP_ATTR_FLAG_NO_IMM_CMPL", UCP_OP_ATTR_FLAG_NO_IMM_CMPL)
