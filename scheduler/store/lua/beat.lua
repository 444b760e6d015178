#!lua flags=allow-oom
-- Beat (T4): the owner is alive; its lease is extended, also one that has run out and that nobody has reaped.
-- ARGV: clock, worker, id, epoch, beat_seq (grows within the attempt), lease_ms, phase, progress, ckpt_uri or '', ckpt_sha,
--   ckpt_step, ckpt_of_training 0|1, events (lib.lua read_events)
-- Replies: OK|CANCEL|PAUSE expiry checkpoint_request-or-'' new 0|1 remaining_ms | LOST | BADARG text
local worker, id, epoch, seq, lease = arg(), arg(), arg(), num(arg()), num(arg())
local phase, progress, ckpt_uri, ckpt_sha, ckpt_step, of_training = arg(), arg(), arg(), arg(), arg(), arg()
local events = read_events()
if not events or #progress > 512 then return {'BADARG', 'events or progress too large'} end
local j = job(id)
if not owned(j, worker, epoch) then return {'LOST'} end

local expiry = fmt(math.max(num(j.lease_ms), now + lease))
put(j, 'lease_ms', expiry)
call('ZADD', P .. 'lease', expiry, id)  -- plain ZADD: a missing lease comes back (trap 8)
local new = seq > num(j.beat_seq)
if new then
  put(j, 'beat_seq', fmt(seq), 'phase', phase, 'beat_ms', fmt(now))
  if progress ~= '' then put(j, 'progress', progress) end
  point_to(j, ckpt_uri, ckpt_sha, ckpt_step, of_training)
  -- From this beat on the worker knows; a repeat of an older one must not tell it of a request that is not marked so.
  if j.ckreq and not j.ckreq_seq then put(j, 'ckreq_seq', fmt(seq)) end
  write_events(j, events)
end
local word = 'OK'
if j.state == 'CANCELLING' then word = 'CANCEL' elseif j.want == 'pause' then word = 'PAUSE' end
return {word, expiry, j.ckreq_seq and j.ckreq or '', new and '1' or '0', fmt(num(expiry) - now)}
