#!lua flags=allow-oom
-- Do what is due in a partition: send unconfirmed deliveries again, end expired locks and those of subscribers that left, end an expired
-- owner's lease, and go on clearing what an attach found locked. Report expired subscriptions, and whether the outbox has something that
-- is due. Hand out items, trim the log, and forget names of publishes whose repeats nobody has to recognise any more.
-- ARGV: now revision frontend number retry
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local repeated, more_due = retries.send()
local late = redis.call('ZRANGEBYSCORE', key.lock_deadlines, '-inf', call.partition_now, 'LIMIT', 0, 200)
local flying = inflight.get_many(late)
for i, position in ipairs(late) do
  if i > 1 and budget.over() then break end
  local flight = flying[i]
  if flight then
    notices.tell({'unlocked', flight.jid, flight.item, tonumber(flight.token), references.describe(flight)})
    lock_end.lose(flight, 'expired', {})
  else
    write_buffer.add('ZREM', key.lock_deadlines, position)
  end
end
write_buffer.flush()
unsubscribing.resume()
ownership.lapse()
if partition_owner.get() and partition_owner.get().clearing then ownership.clear('stolen') end
subscription_expiry.tell_lapsed()
outbox.look()
journal.trim()
waiters.tidy()
local more_names = dedupe_window.tidy(dedupe_window.SOME)
if call.partition_before.replies then outcomes.forget(outcomes.FORGET) end
-- Asked here: most partitions keep no finished items and need no trim.
local more_aged = call.partition_kept > 0 and trim.by_age() or 0
local reply = respond.make({}, dispatch.LIMIT)
local deliveries = reply[respond.DELIVERIES] or {}
for _, value in ipairs(repeated) do deliveries[#deliveries + 1] = value end
reply[respond.DELIVERIES] = #deliveries > 0 and deliveries
local who = partition_owner.get()
if #late == 200 or budget.over() or call.unsubscribing_more or call.ready_queue_more or more_due or more_names or more_aged == 1
  or (who and who.clearing) then reply[respond.MORE] = 1 end
reply[respond.DUE] = subscription_expiry.next(reply[respond.DUE])
return reply
