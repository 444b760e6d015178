#include "tests/integration/scheduler_model/mutants.h"

#include <stdexcept>

namespace dex::model {

namespace {

const char* const kOwned = "if not owned(j, worker, epoch) then return {'LOST'} end";

std::vector<Mutant> of_attempts() {
  return {
      {"finish_without_epoch_check",
       "finish",
       {{kOwned, "if not owned(j, worker, j.epoch) then return {'LOST'} end"}}},
      {"finish_without_worker_check",
       "finish",
       {{kOwned, "if not owned(j, j.worker, epoch) then return {'LOST'} end"}}},
      // The worker's name goes with the state, so that check goes too.
      {"finish_without_state_check",
       "finish",
       {{kOwned, "if j.epoch ~= epoch then return {'LOST'} end"}}},
      {"finish_without_memory_of_repeats",
       "finish",
       {{"if j.fin_epoch == epoch and j.fin_out == outcome and j.fin_worker == worker then return "
         "{'DUP', j.fin_reply} end",
         ""}}},
      {"finish_by_anybody_logged_as_the_owner",
       "finish",
       {{kOwned,
         "local owner = j.worker\n"
         "if j.state ~= 'RUNNING' and j.state ~= 'CANCELLING' then return {'LOST'} end"},
        {"event(j, epoch, worker, outcome)", "event(j, j.epoch, owner, outcome)"}}},
      {"finish_loses_the_success_of_a_cancelling_job",
       "finish",
       {{"if outcome == 'success' then\n  put(",
         "if outcome == 'success' and not cancelling then\n  put("}}},
      {"finish_takes_cancelled_from_a_running_job",
       "finish",
       {{"if outcome == 'cancelled' and j.state == 'RUNNING' then return {'BADSTATE', j.state} end",
         ""}}},
      {"finish_leaves_the_adapter_to_a_second_step",
       "finish",
       {{"if j.adapter ~= '' then\n    call('HSET'", "if false then\n    call('HSET'"}}},
      {"finish_leaves_the_ring", "finish", {{"synced(j)\nreturn", "return"}}},
      {"finish_counts_a_release_as_failure",
       "finish",
       {{"add(j, 'preempts', 1)", "add(j, 'failures', 1)"}}},
      {"finish_counts_a_full_disk_as_failure",
       "finish",
       {{"add(j, 'fulls', 1)", "add(j, 'failures', 1)"}}},
      {"finish_forgets_hold", "finish", {{"if j.want == 'run' then", "if j.want ~= 'pause' then"}}},
      {"finish_pauses_a_resumed_job", "finish", {{"if j.want == 'run' then", "if false then"}}},
      {"finish_forgets_the_last_checkpoint",
       "finish",
       {{"point_to(j, ckpt_uri, ckpt_sha, ckpt_step, of_training)", ""}}},
      {"beat_without_epoch_check",
       "beat",
       {{kOwned, "if not owned(j, worker, j and j.epoch) then return {'LOST'} end"}}},
      {"beat_without_worker_check",
       "beat",
       {{kOwned, "if not owned(j, j and j.worker, epoch) then return {'LOST'} end"}}},
      {"beat_shrinks_the_lease",
       "beat",
       {{"fmt(math.max(num(j.lease_ms), now + lease))", "fmt(now + lease)"}}},
      {"beat_takes_a_repeat_for_new",
       "beat",
       {{"local new = seq > num(j.beat_seq)", "local new = true"}}},
      {"beat_tells_of_no_checkpoint_request",
       "beat",
       {{"if j.ckreq and not j.ckreq_seq then put(j, 'ckreq_seq', fmt(seq)) end", ""}}},
      {"claim_cannot_be_repeated", "claim", {{"if w[2] == claim_id then", "if false then"}}},
      {"claim_repeated_without_checkpoint",
       "claim",
       {{"j.ckpt_uri or '', j.ckpt_sha or '', j.ckpt_step or '0',",
         "replayed == '0' and j.ckpt_uri or '', j.ckpt_sha or '', j.ckpt_step or '0',"}}},
      {"claim_repeated_without_want",
       "claim",
       {{"j.ooms, j.want, j.kind", "j.ooms, replayed == '0' and j.want or 'run', j.kind"}}},
      {"claim_keeps_the_epoch",
       "claim",
       {{"local epoch = fmt(math.max(num(j.epoch) + 1, now))", "local epoch = j.epoch"}}},
      {"claim_takes_the_clock_for_epoch",
       "claim",
       {{"local epoch = fmt(math.max(num(j.epoch) + 1, now))", "local epoch = fmt(now)"}}},
      {"claim_keeps_the_place_in_ready",
       "claim",
       {{"      leave(j)\n      put(j, 'epoch'",
         "      for _, set in ipairs({'rq', 'inflight', 'twait'}) do call('ZREM', set_key(set, j), "
         "j.id) end\n      put(j, 'epoch'"}}},
      {"claim_leaves_a_tenant_at_its_limit_in_the_ring",
       "claim",
       {{"if running(t) >= tenant(t).max_running then ring_sync_all(t) else ring_sync(t, pool) end",
         ""}}},
      {"claim_charges_nothing", "claim", {{"charge(t, pool, num(j.cost))", ""}}}};
}

std::vector<Mutant> of_time() {
  return {
      {"sweep_keeps_the_place_among_the_running",
       "sweep",
       {{"end_attempt(j)\n  if cancelling",
         "end_attempt(j)\n  call('ZADD', P .. 'trun:' .. j.tenant, j.enter_ms, j.id)\n  if "
         "cancelling"}}},
      {"sweep_without_settle_window",
       "sweep",
       {{"local settling = now < settle_until", "local settling = false"}}},
      {"sweep_without_gap_rule",
       "sweep",
       {{"if now - num(c[1]) > gap then settle_until = math.max(settle_until, now + settle) end",
         ""}}},
      {"sweep_settles_long_after_a_step_back",
       "sweep",
       {{"if settle_until > now + settle then settle_until = now + settle end", ""}}},
      {"sweep_leaves_leases_far_ahead_after_a_step_back",
       "sweep",
       {{"local ahead = fmt(now + lease_max)", "local ahead = fmt(now + 1000 * lease_max)"}}},
      {"sweep_forgets_a_waiting_pause",
       "sweep",
       {{"if j.want == 'pause' then\n    put(j, 'want', 'run', 'pause_reason', 'USER')",
         "if false then\n    put(j, 'want', 'run', 'pause_reason', 'USER')"}}},
      {"sweep_counts_no_crash", "sweep", {{"add(j, 'crashes', 1)", ""}}}};
}

std::vector<Mutant> of_submit() {
  return {
      {"submit_without_quota",
       "submit",
       {{"if waiting + n > limits.max_queued then", "if false then"}}},
      {"submit_counts_one_of_a_batch",
       "submit",
       {{"if waiting + n > limits.max_queued then", "if waiting + 1 > limits.max_queued then"}}},
      {"submit_remembers_before_it_checks",
       "submit",
       {{"if made then return made end\n",
         "if made then return made end\nremember(t, request_id, sha, ttl, 'ftjob-early')\n"}}},
      {"submit_takes_the_name_before_it_checks",
       "submit",
       {{"uniq_here[j.uniq] = j.id",
         "uniq_here[j.uniq] = j.id\n    call('SET', P .. 'uniq:' .. t .. ':' .. j.uniq, j.id)"}}},
      {"submit_gives_one_name_twice", "submit", {{" or uniq_here[j.uniq]", ""}}},
      {"submit_takes_a_foreign_file",
       "submit",
       {{"if owner[1] ~= t then", "if not owner[1] then"}}},
      {"submit_ignores_the_body_of_a_repeat",
       "submit",
       {{"{made[1] == sha and 'DUP' or 'CONFLICT'}", "{'DUP'}"}}}};
}

std::vector<Mutant> of_the_rest() {
  return {
      {"the_end_keeps_the_name",
       "lib",
       {{"call('DEL', P .. 'uniq:' .. j.tenant .. ':' .. j.uniq)", "j.kept = true"}}},
      {"the_end_keeps_the_files",
       "lib",
       {{"for file in string.gmatch(j.files, '%S+') do call('ZREM', P .. 'fileuse:' .. file, j.id) "
         "end",
         ""}}},
      {"a_deadline_stays_while_cancelling",
       "lib",
       {{"call('ZREM', P .. 'deadline', j.id)\n    leave(j)", "leave(j)"}}},
      {"a_spent_day_counts_in_one_pool_only",
       "lib",
       {{"if most > 0 and (num(used) >= most) ~= (limits.gpu_used >= most) then ring_sync_all(t) "
         "end",
         ""}}},
      {"a_file_in_use_is_deleted", "file", {{"if user then return {'INUSE', user} end", ""}}},
      {"cancel_without_tenant_check",
       "cancel",
       {{"if not j or j.tenant ~= t then", "if not j then"}}},
      {"pause_without_tenant_check",
       "pause",
       {{"if not j or j.tenant ~= t then", "if not j then"}}},
      {"resume_keeps_the_full_disks", "resume", {{"'fulls', '0', ", ""}}},
      {"redrive_resets_the_epoch",
       "redrive",
       {{"put(j, 'failures', '0',", "put(j, 'epoch', '0', 'failures', '0',"}}},
      {"redrive_takes_any_ended_job",
       "redrive",
       {{"if j.state ~= 'FAILED' then", "if not TERMINAL[j.state] then"}}},
      {"redrive_cannot_be_repeated",
       "redrive",
       {{"if made then return made end", ""},
        {"if j.op_id == op_id then return {'DUP', j.state} end", ""}}},
      {"redrive_takes_no_files",
       "redrive",
       {{"for file in string.gmatch(j.files, '%S+') do call('ZADD', P .. 'fileuse:' .. file, "
         "fmt(now), id) end",
         ""}}},
      {"reprio_leaves_the_tenants_queue",
       "reprio",
       {{"ipairs({'ready', 'rq'})", "ipairs({'ready'})"}}},
      {"reprio_ignores_the_etag",
       "reprio",
       {{"if etag ~= '' and etag ~= j.rev then return {'STALE', j.rev} end", ""}}},
      {"purge_without_mark",
       "purge",
       {{"if not j.purging then return {'NOTMARKED', j.state} end",
         "if not TERMINAL[j.state] then return {'NOTMARKED', j.state} end"}}},
      {"purge_keeps_the_log",
       "purge",
       {{"P .. 'spec:' .. id, P .. 'log:' .. id, ", "P .. 'spec:' .. id, "}}},
      {"purge_takes_young_jobs",
       "purge",
       {{"if now - num(j.finished_ms) < retention then return {'YOUNG', j.state} end", ""}}}};
}

std::vector<Mutant> of_records() {
  return {
      {"hello_opens_no_settle_window",
       "hello",
       {{"fmt(math.max(num(c[2]), now + settle))", "fmt(num(c[2]))"}}},
      {"hello_takes_each_connection_for_a_restart",
       "hello",
       {{"if c[1] == run_id then return {'SAME'} end", ""}}},
      {"archived_goes_back",
       "archived",
       {{"math.max(num(j.archived), math.min(seq, num(j.seq)))\nif done > num(j.archived) then put",
         "math.min(seq, num(j.seq))\nif true then put"}}},
      {"archived_beyond_the_log", "archived", {{"math.min(seq, num(j.seq))", "seq"}}},
      {"archived_cuts_what_lies_in_no_archive",
       "archived",
       {{"math.min(first_kept, done + 1)", "first_kept"}}},
      {"archived_cuts_nothing", "archived", {{"if #last == 50 then", "if false then"}}},
      {"archived_takes_a_job_that_is_about_to_go",
       "archived",
       {{"if not j or j.purging then", "if not j then"}}},
      {"reconcile_forgets_deadlines",
       "reconcile",
       {{"if belongs(j, 'deadline') then want[P .. 'deadline'] = j.deadline_ms end", ""}}},
      {"reconcile_puts_nothing_back", "reconcile", {{"call('ZADD', key, want[key], j.id)\n", ""}}},
      {"reconcile_trusts_any_score",
       "reconcile",
       {{"(not score or num(score) ~= num(want[key]))", "not score"}}},
      {"reconcile_leaves_strangers",
       "reconcile",
       {{"fixes = fixes + call('ZREM', key, ARGV[i])", "fixes = fixes + 0"}}},
      {"adapter_goes_while_it_is_held",
       "adapter",
       {{"if a.desired == 'loaded' then return {'INUSE', ''} end", ""}}},
      {"adapter_goes_while_a_job_needs_it",
       "adapter",
       {{"if user then return {'INUSE', user} end", ""}}},
      {"adapter_goes_and_stays_in_its_list",
       "adapter",
       {{"call('ZREM', P .. 'tadapters:' .. t, id)", ""}}},
      {"adapter_let_go_is_still_listed",
       "adapter",
       {{"call('ZREM', P .. 'desired', id)\n    end", "end"}}},
      {"adapter_wanted_without_tenant_check",
       "adapter",
       {{"if not a or a.tenant ~= t then return {'NOTFOUND'} end\n  if desired == ''",
         "if not a then return {'NOTFOUND'} end\n  if desired == ''"}}},
      {"the_end_keeps_the_adapters",
       "lib",
       {{"for adapter in string.gmatch(j.uses or '', '%S+') do call('ZREM', P .. 'adapteruse:' .. "
         "adapter, j.id) end",
         ""}}},
      {"submit_takes_a_foreign_adapter",
       "lib",
       {{"if call('HGET', P .. 'adapter:' .. adapter, 'tenant') ~= t then return adapter end",
         "if call('EXISTS', P .. 'adapter:' .. adapter) == 0 then return adapter end"}}},
      {"pause_forgets_its_request", "pause", {{"remember(t, request_id, sha, ttl, id)", ""}}},
      {"resume_does_again_what_was_done", "resume", {{"if made then return made end", ""}}},
      {"update_does_again_what_was_done", "reprio", {{"if made then return made end", ""}}},
      {"purge_does_again_what_was_done", "purge", {{"if made then return made end", ""}}},
      {"checkpoint_forgets_its_request",
       "checkpoint",
       {{"remember(t, request_id, sha, ttl, checkpoint)", ""}}}};
}

// The scripts as they are compiled in hold lib.lua each.
std::string edited(const store::Script& script, const Mutant& mutant) {
  std::string text = script.text;
  for (const Edit& edit : mutant.edits) {
    const size_t at = text.find(edit.text);
    if (at == std::string::npos || text.find(edit.text, at + 1) != std::string::npos) {
      throw std::runtime_error("mutant " + mutant.name + ": '" + edit.text + "' stands " +
                               (at == std::string::npos ? "not at all" : "more than once") +
                               " in " + script.name + ".lua");
    }
    text.replace(at, edit.text.size(), edit.replacement);
  }
  return text;
}

}  // namespace

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> all = [] {
    std::vector<Mutant> rows;
    for (const std::vector<Mutant>& part :
         {of_attempts(), of_time(), of_submit(), of_the_rest(), of_records()}) {
      rows.insert(rows.end(), part.begin(), part.end());
    }
    return rows;
  }();
  return all;
}

std::vector<store::Script> scripts_with(const Mutant& mutant) {
  std::vector<store::Script> scripts;
  bool found = false;
  for (const store::Script& script : store::all_scripts()) {
    const bool touched = mutant.script == "lib" || mutant.script == script.name;
    scripts.emplace_back(script.name, touched ? edited(script, mutant) : script.text);
    found = found || touched;
  }
  if (!found) throw std::runtime_error("mutant " + mutant.name + ": no script " + mutant.script);
  return scripts;
}

}  // namespace dex::model
