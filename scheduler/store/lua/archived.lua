#!lua flags=allow-oom
-- Archived: a job's events up to `seq` lie in its events.jsonl; the log keeps the last 50 and what came after `seq`.
-- ARGV: clock, id, seq
-- Replies: OK archived | GONE (or about to go: nobody will read the archive, so the caller removes it)
local id, seq = arg(), num(arg())
local j = job(id)
if not j or j.purging then return {'GONE'} end
local done = math.max(num(j.archived), math.min(seq, num(j.seq)))
if done > num(j.archived) then put(j, 'archived', fmt(done)) end
local last = call('XREVRANGE', P .. 'log:' .. id, '+', '-', 'COUNT', '50')
if #last == 50 then
  local first_kept = num(string.match(last[50][1], '^[0-9]+'))
  call('XTRIM', P .. 'log:' .. id, 'MINID', fmt(math.min(first_kept, done + 1)) .. '-0')
end
return {'OK', fmt(done)}
