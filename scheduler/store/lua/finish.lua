#!lua flags=allow-oom
-- Finish: an attempt's end (T5 to T8, T10, T13). `success` is the publication: result, adapter record and state in one step.
-- ARGV: clock, worker, id, epoch, outcome, backoff_ms (base, the script doubles it), result_uri, result_sha, result (opaque),
--   ckpt_uri or '', ckpt_sha, ckpt_step, ckpt_of_training 0|1, why_code, why, why_details (opaque), progress or '', events
--   (lib.lua read_events), trained tokens (of a success)
-- Outcomes: success fail_retry fail_final crash oom disk_full release paused cancelled
-- Replies: OK state pool kind seconds_run why_code | DUP state | LOST | BADSTATE state | BADARG text
local worker, id, epoch, outcome, backoff = arg(), arg(), arg(), arg(), num(arg())
local result_uri, result_sha, result = arg(), arg(), arg()
local ckpt_uri, ckpt_sha, ckpt_step, of_training = arg(), arg(), arg(), arg()
local why_code, why, why_details, progress = arg(), arg(), arg(), arg()
local events = read_events()
local trained_tokens = num(arg())
local OUTCOMES = {success = 1, fail_retry = 1, fail_final = 1, crash = 1, oom = 1, disk_full = 1, release = 1, paused = 1,
                  cancelled = 1}

local j = job(id)
if not j then return {'LOST'} end
if j.fin_epoch == epoch and j.fin_out == outcome and j.fin_worker == worker then return {'DUP', j.fin_reply} end
if not owned(j, worker, epoch) then return {'LOST'} end
if outcome == 'cancelled' and j.state == 'RUNNING' then return {'BADSTATE', j.state} end
if not OUTCOMES[outcome] then return {'BADARG', 'unknown outcome'} end
if outcome == 'success' and result_uri == '' then return {'BADARG', 'success without a result'} end
if not events then return {'BADARG', 'events too large'} end

local cancelling, seconds = j.state == 'CANCELLING', math.max(0, now - num(j.started_ms)) / 1000
write_events(j, events)
point_to(j, ckpt_uri, ckpt_sha, ckpt_step, of_training)
end_attempt(j)
if progress ~= '' then put(j, 'progress', progress) end

local function failed(code, text)
  put(j, 'why_code', code, 'why', text, 'why_details', why_details)
  terminal(j, 'FAILED')
end

if outcome == 'success' then
  put(j, 'result_uri', result_uri, 'result_sha', result_sha, 'result', result)
  drop(j, 'why_code', 'why', 'why_details')
  if j.adapter ~= '' then
    call('HSET', P .. 'adapter:' .. j.adapter, 'id', j.adapter, 'tenant', j.tenant, 'job', id, 'epoch', epoch,
         'uri', result_uri, 'sha', result_sha, 'info', result, 'created_ms', fmt(now), 'rev', '1', 'desired', 'none',
         'disabled', '0', 'pinned', '0', 'tier', 'DEVICE')
    call('ZADD', P .. 'tadapters:' .. j.tenant, fmt(now), j.adapter)
    call('HINCRBY', CFG, 'routes_rev', '1')
  end
  count_use(j.tenant, 'trained_tokens', trained_tokens)
  terminal(j, 'SUCCEEDED')
elseif cancelling then  -- T10: the reason given with the cancel stays
  terminal(j, 'CANCELLED')
elseif outcome == 'fail_retry' then
  add(j, 'failures', 1)
  if num(j.failures) > num(j.max_fail) then
    failed(why_code, why)
  else
    put(j, 'why_code', why_code, 'why', why)
    local delay = math.min(backoff * 2 ^ (num(j.failures) - 1), 1800000)
    if delay > 0 then put(j, 'enter_ms', fmt(now + delay)) end
    requeue(j, delay)
  end
elseif outcome == 'fail_final' then
  failed(why_code, why)
elseif outcome == 'crash' then
  crashed(j, backoff, why)
elseif outcome == 'oom' then
  add(j, 'ooms', 1)
  if num(j.ooms) > 1 then failed('out_of_memory', why) else requeue(j, 0) end
elseif outcome == 'disk_full' then
  add(j, 'fulls', 1)
  if num(j.fulls) > 3 then
    put(j, 'want', 'run', 'pause_reason', 'DISK_FULL')
    enter(j, 'PAUSED')
  else
    requeue(j, 0)
  end
elseif outcome == 'release' then
  add(j, 'preempts', 1)
  if num(j.preempts) > 100 then failed('internal', 'The job was given back more than 100 times.') else requeue(j, 0) end
elseif outcome == 'paused' then
  if j.want == 'run' then
    requeue(j, 0)
  else
    put(j, 'pause_reason', j.want == 'hold' and 'AWAITING_START' or 'USER', 'want', 'run')
    enter(j, 'PAUSED')
  end
end

put(j, 'fin_epoch', epoch, 'fin_out', outcome, 'fin_reply', j.state, 'fin_worker', worker)
event(j, epoch, worker, outcome)
if TERMINAL[j.state] then log_end(j) else log_requeue(j, why ~= '' and why or outcome) end
synced(j)
return {'OK', j.state, j.pool, j.kind, fmt6(seconds), j.why_code or ''}
