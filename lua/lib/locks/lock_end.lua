-- Ends locks: the item is acknowledged or cancelled, or it is given back (released, expired, bounced) and may become a dead letter.
-- CALL: touched = {}, arrived = {}, freed = 0
local lock_end = {}

-- Records a change of what a subscriber holds or may hold.
function lock_end.touch(subid)
  call.lock_end_touched[subid] = true
end

-- Notes that a delivery has arrived: its subscriber answers.
function lock_end.note_arrival(subid)
  call.lock_end_arrived[subid] = true
end

local function unlock(flight)
  budget.spend(1.2)
  write_buffer.add('HDEL', key.inflight, flight.position)
  write_buffer.add('ZREM', key.lock_deadlines, flight.position)
  write_buffer.add('ZREM', key.locks_by_subscriber, held_locks.member(flight.token, flight.position))
  -- Asked here: this runs for each acknowledgement, and a call costs more than the test.
  if call.partition_before.journal then journal.note_named(flight) end
  if call.partition_before.confirms then confirmations.remove(flight.position) end
  if call.partition_before.keyed then key_limits.unlock(flight.position) end
  if call.partition_before.referenced then references.free(flight) end
  if call.partition_before.progress then write_buffer.add('HDEL', key.progress, flight.position, worker_deaths.mark(flight.position)) end
  call.lock_end_touched[flight.subid] = true
  call.lock_end_freed = call.lock_end_freed + 1
end

local function find_successor(flight)
  return rare_keys.any() and redis.call('HGET', key.successors, flight.position) or nil
end

-- Removes the locked item; a later version, parked while it was locked, becomes an item of its own (X1).
local function finish(flight, successor, acknowledged)
  local name = successor and '' or flight.item
  if acknowledged and call.partition_options.keeps then
    items.keep(flight.position, flight.log_id, name, inflight.bytes(flight))
  else
    items.erase(flight.position, flight.log_id, name, acknowledged)
  end
  if flight.attempt ~= '1' then write_buffer.add('HDEL', key.history, flight.position) end
  if call.partition_before.hinted then scheduling.remove(flight.position) end
  local entry = successor and (call.partition_before.hinted or call.partition_options.ordered) and log_entries.get(successor)
  local scheduled = entry and call.partition_before.hinted and scheduling.add(successor, entry)
  local grouped = group_order.replace(flight.position, entry and not scheduled and successor, entry and entry.key)
  if successor then
    write_buffer.add('HDEL', key.successors, flight.position)
    if not (scheduled or grouped) then write_buffer.add('ZADD', key.ready, positions.place(successor), successor) end
    write_buffer.add('HSET', key.index, flight.item, successor)
  end
end

-- With a `result` the worker answers the publisher.
function lock_end.acknowledge(flight, result)
  unlock(flight)
  lock_end.note_arrival(flight.subid)
  if flight.reference then flight.reference.how = 'reached' end
  finish(flight, find_successor(flight), true)
  if call.partition_before.replies then outcomes.note_end(flight.position, flight.item, 'acknowledged', '', result or '') end
  journal.add('acknowledged', flight, '')
end

-- The item goes without being acknowledged, with a later version that waits for its lock.
function lock_end.cancel(flight)
  unlock(flight)
  local successor = find_successor(flight)
  if successor then
    write_buffer.add('XDEL', key.log, successor)
    partition.count_removed(1)
    write_buffer.add('HDEL', key.successors, flight.position)
    outcomes.note_end(successor, flight.item, 'cancelled', '', '')
  end
  finish(flight, nil, false)
  outcomes.note_end(flight.position, flight.item, 'cancelled', '', '')
  journal.add('cancelled', flight, '')
end

-- `kind` is released, expired or bounced; `request` may have delay_ms, reason, dead_letter, and untried (the attempt does not count).
-- Without a delay_ms, also of 0, an item whose attempt counts rests as its node asks. An item whose entry somebody has removed with
-- redis-cli ends here, where the entry is read; else `ready_queue` passes over it.
function lock_end.release(flight, kind, request)
  unlock(flight)
  local successor = find_successor(flight)
  local attempt, counts = tonumber(flight.attempt), not request.untried
  local tried = counts and attempt_history.exhausted(flight.position, attempt, call.partition_options.max_deliveries)
  local reason, dead = request.reason or '', call.partition_options.dead_letters and (tried or request.dead_letter)
  local reads = not successor and (dead or call.partition_before.hinted)
  local entry = reads and log_entries.get(flight.log_id)
  if successor then
    finish(flight, successor, false)
    outcomes.pass_on(flight.position, successor)
  elseif reads and not entry then
    kind, reason = 'cancelled', 'removed'
    finish(flight, nil, false)
    outcomes.note_end(flight.position, flight.item, 'cancelled', reason, '')
  elseif dead then
    local tries = attempt_history.count(flight.position, attempt) - (counts and 0 or 1)
    attempt_history.add(flight, kind, reason, request.untried)
    kind, reason = 'dead-lettered', reason ~= '' and reason or (tried and 'max-deliveries' or kind)
    outbox_items.start(flight.position, entry, tries, flight.jid, reason)
    outcomes.note_end(flight.position, flight.item, 'dead', reason, '')
  else
    attempt_history.add(flight, kind, reason, request.untried)
    local delay, over = request.delay_ms, call.partition_before.hinted and expiry.expire_or_wait(flight, entry, attempt)
    delay = delay or counts and attempt_history.rest_after(flight.position, attempt) or 0
    if delay > 0 and not over then
      rare_keys.add('ZADD', key.delayed, call.partition_now + delay, flight.position)
    elseif not over then
      write_buffer.add('ZADD', scheduling.place(flight.position))
    end
  end
  journal.add(kind, flight, reason)
end

-- Ends a lock without its holder's word; `request` may have delay_ms and reason.
function lock_end.lose(flight, kind, request)
  request.untried = not worker_deaths.counts(flight)
  lock_end.release(flight, kind, request)
end

-- Updates the turns of all touched subscribers, and lets those wait that had no room.
function lock_end.update_turns()
  write_buffer.flush()
  for subid in pairs(call.lock_end_touched) do
    local subscriber = credit.renew(subid, call.lock_end_arrived[subid])
    if call.partition_before.multi and not subscriber then subscription_ids.tidy(subid) end
    waiters.make_room(subid)
  end
end
