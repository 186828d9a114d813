-- Ends a subscription, and gives back all its locks.
-- CALL: more = false
-- `more`: there is work to continue at once. `WITHDRAWN`: the reason for ending locks whose holder gets a notice.
local unsubscribing = {CHUNK = 300, WITHDRAWN = 'withdrawn'}

function unsubscribing.stop_working(subid)
  redis.call('ZREM', key.ready_subscribers, subid)
  redis.call('ZREM', key.idle_subscribers, subid)
  if call.partition_options.collects then redis.call('HDEL', key.scopes, subid) end
  skipped_items.set_selector(subid, '')
  waiters.remove(subid)
end

-- Removes a subscription and frees the partition that it owned; `kept` and `reason` as in `ownership_loss.end_of`.
function unsubscribing.remove(subid, kept, reason)
  ownership_loss.end_of(subid, kept, reason)
  unsubscribing.stop_working(subid)
  reader_window.forget(subid)
  redis.call('ZREM', key.subscription_expiry, subid)
  lock_end.touch(subid)
  return redis.call('HDEL', key.subscribers, subid) == 1
end

-- Ends the lock of a subscription that ends.
function unsubscribing.give_back(flight, kind, reason)
  if reason == unsubscribing.WITHDRAWN then
    notices.tell({'ended', flight.jid, flight.item, tonumber(flight.token), references.describe(flight)})
  end
  lock_end.lose(flight, kind, {reason = reason})
end

-- Gives back up to `CHUNK` items, or with `most` so many, and returns how many are left: one call must not run for long. If any are
-- left, `locks_to_release` has the last token handed out and the reason, and sweeps continue, whatever becomes of the caller. What a
-- subscriber holds through a collection ends in the queues.
function unsubscribing.release(subid, kind, reason, most)
  if call.partition_options.collects then
    semaphore.withdraw(subid, reason)
    return 0, 0
  end
  local places = held_locks.of(subid, most or unsubscribing.CHUNK)
  local ended = 0
  for _, flight in ipairs(inflight.get_many(places)) do
    if ended > 0 and budget.exhausted() then break end
    if flight then unsubscribing.give_back(flight, kind, reason) end
    ended = ended + 1
  end
  write_buffer.flush()
  local left = credit.lock_count(subid)
  if left > 0 then
    call.unsubscribing_more = true
    rare_keys.write('HSET', key.locks_to_release, subid, string.format('%d ', call.partition_token) .. kind .. ' ' .. reason)
  end
  return left, ended
end

-- Continues with one subscription that has left; returns how many more items this call may give back. Locks with later tokens belong to
-- a new subscription of the same subid.
local function resume_one(subid, note, room)
  local token, kind, reason = string.match(note, '^(%d+) (%S+) (%S+)$')
  for _, flight in ipairs(inflight.get_many(held_locks.of(subid, room + 1))) do
    if flight and tonumber(flight.token) > tonumber(token) then break end
    if flight then
      if room == 0 or budget.exhausted() then return 0 end
      unsubscribing.give_back(flight, kind, reason)
      room = room - 1
    end
  end
  redis.call('HDEL', key.locks_to_release, subid)
  return room
end

-- Gives back more locks of subscriptions that have left. Run by sweeps.
function unsubscribing.resume()
  if not rare_keys.any() then return end
  local noted, room = redis.call('HSCAN', key.locks_to_release, 0, 'COUNT', 20)[2], unsubscribing.CHUNK
  for i = 1, #noted, 2 do
    if room > 0 then room = resume_one(noted[i], noted[i + 1], room) end
  end
  write_buffer.flush()
  if #noted > 0 then call.unsubscribing_more = redis.call('EXISTS', key.locks_to_release) == 1 end
end
