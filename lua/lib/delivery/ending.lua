-- How a lock ends: acknowledged, or given back (released, expired, bounced), which may make the item a dead letter.
-- CALL: touched = {}, arrived = {}, freed = 0, ended = {}, pools = {}, any_parked = nil
-- `pools` are those of subscriptions that have ended in this script, by subid.
local ending = {}

-- Something has changed what a subscriber holds, or may hold.
function ending.touch(subid)
  call.ending_touched[subid] = true
end

local function unlock(flight)
  call.budget_spent = call.budget_spent + 1.2
  writes.add('HDEL', key.inflight, flight.position)
  writes.add('ZREM', key.deadlines, flight.position)
  writes.add('ZREM', key.held, holdings.member(flight.token, flight.position))
  -- Asked here: this runs for each acknowledgement, and a call costs more than the question.
  if call.partition_confirms then unconfirmed.forget(flight.position) end
  call.ending_touched[flight.subid] = true
  call.ending_freed = call.ending_freed + 1
end

local function parked(flight)
  if call.ending_any_parked == nil then call.ending_any_parked = redis.call('EXISTS', key.parked) == 1 end
  return call.ending_any_parked and redis.call('HGET', key.parked, flight.position) or nil
end

-- The item that was locked goes; a later version, parked while it was locked, becomes an item of its own (X1).
local function finish(flight, successor, acknowledged)
  local name = successor and '' or flight.item
  if acknowledged and call.partition_keeps then
    items.keep(flight.position, flight.log_id, name, flights.bytes(flight))
  else
    items.erase(flight.position, flight.log_id, name)
  end
  if flight.attempt ~= '1' then writes.add('HDEL', key.history, flight.position) end
  if call.partition_hinted then hints.forget(flight.position) end
  ordering.done(flight.position)
  if successor then
    writes.add('HDEL', key.parked, flight.position)
    local entry = call.partition_hinted and entries.get(successor)
    if not (entry and hints.enter(successor, entry)) then
      writes.add('ZADD', key.ready, positions.place(successor), successor)
    end
    writes.add('HSET', key.index, flight.item, successor)
  end
end

function ending.acknowledge(flight)
  unlock(flight)
  call.ending_arrived[flight.subid] = true
  finish(flight, parked(flight), true)
  journal.closed('acknowledged', flight, '')
end

-- `kind` is released, expired or bounced; `wish` may hold delay_ms, reason, dead_letter, and untried: it does not count.
-- What nobody has fetched goes back as if it had never been set aside: nobody was given it, so there was no attempt.
function ending.release(flight, kind, wish)
  unlock(flight)
  local successor, unfetched = parked(flight), flights.unfetched(flight)
  local attempt = tonumber(flight.attempt) - (unfetched and 1 or 0)
  local tried = not (wish.untried or unfetched) and history.tried(flight.position, attempt, call.partition_max_deliveries)
  local reason = wish.reason or ''
  if successor then
    finish(flight, successor, false)
  elseif call.partition_dead_letters and (tried or wish.dead_letter) then
    kind, reason = 'dead-lettered', reason ~= '' and reason or (tried and 'max-deliveries' or kind)
    handover.start(flight.position, entries.get(flight.log_id), attempt, flight.jid, reason)
  else
    if not unfetched then history.add(flight.position, flight.attempt, flight.subid, wish.untried) end
    local delay, over = wish.delay_ms or 0, call.partition_hinted and times.back(flight, attempt)
    if delay > 0 and not over then
      writes.add('ZADD', key.delayed, call.partition_now + delay, flight.position)
    elseif not over then
      writes.add('ZADD', ordering.place(flight.position))
    end
  end
  if kind == 'dead-lettered' or not unfetched then journal.closed(kind, flight, reason) end
end

-- Gives turns back to those that were touched.
function ending.settle()
  writes.flush()
  for subid in pairs(call.ending_touched) do credit.settle(subid, call.ending_arrived[subid]) end
end
