-- Ends the ownership of a partition when its lease ends, and the locks from before an attach.
local ownership = {CHUNK = 300}

-- Frees a partition whose owner has not renewed its lease (EX16).
function ownership.lapse()
  local who = partition_owner.get()
  if not who or who.lease > call.partition_now then return end
  unsubscribing.remove(who.subid, false, 'lapsed')
  unsubscribing.release(who.subid, 'released', 'lapsed')
end

-- Ends locks from before the owner's attach, a bounded part at a time. The owner gets nothing until all have ended, so every lock found
-- is one of them; the fence refuses the others. A former shared subscriber gets a notice of each of its locks; a former owner has got one
-- notice for all.
function ownership.clear(reason)
  local who, told = partition_owner.get(), {}
  for _, each in ipairs(call.notices_made) do
    if each[1] == 'lost' then told[each[2]] = true end
  end
  local members, places = redis.call('ZRANGE', key.locks_by_subscriber, 0, ownership.CHUNK - 1), {}
  for i, member in ipairs(members) do places[i] = held_locks.position(member) end
  for i, flight in ipairs(inflight.get_many(places)) do
    if i > 1 and budget.exhausted() then break end
    if flight then
      lock_end.lose(flight, 'released', {reason = reason, delay_ms = 0})
      if not told[flight.jid] then
        notices.tell({'ended', flight.jid, flight.item, tonumber(flight.token), references.describe(flight)})
      end
    else
      write_buffer.add('ZREM', key.locks_by_subscriber, members[i])
    end
  end
  write_buffer.flush()
  who.clearing = redis.call('EXISTS', key.locks_by_subscriber) == 1
  partition_owner.put(who)
end
