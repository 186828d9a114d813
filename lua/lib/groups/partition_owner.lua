-- The owner of the partition, if it has one (E26, E28). `meta` has the `owner`, a line `subid lease clearing group`, and the `fence`, the
-- token of the last attach: a lock with a lower token is void (EX11). The lease is a time in ms (EX16); `clearing` is 1 while locks below
-- the fence are left. An owner always has a subscription.
-- CALL: found = nil
local partition_owner = {}

-- Reads it once per call; returns false without an owner.
function partition_owner.get()
  if not call.partition_before.owner then return false end
  if call.partition_owner_found == nil then
    local subid, lease, clearing, group = string.match(call.partition_before.owner, '^(%d+) (%d+) (%d) (.+)$')
    call.partition_owner_found = {subid = subid, lease = tonumber(lease), clearing = clearing == '1', group = group}
  end
  return call.partition_owner_found
end

-- Whether a subscription owns the partition: its locks here do not count towards shared credit.
function partition_owner.is(subid)
  local who = partition_owner.get()
  return who and who.subid == subid
end

function partition_owner.put(who)
  call.partition_owner_found = who
  partition.put('owner', string.format('%s %d %d ', who.subid, who.lease, who.clearing and 1 or 0) .. who.group)
end

function partition_owner.drop()
  partition.drop('owner')
end

function partition_owner.renew(who)
  who.lease = call.partition_deadline
  partition_owner.put(who)
end

-- Any command of the owner renews its lease, but only when half of it is gone, which saves writes. `subids` are the subscriptions that a
-- sender may have.
function partition_owner.renew_when_seen(subids)
  local who = partition_owner.get()
  if not who or who.lease - call.partition_now > call.partition_options.lock_ms / 2 then return end
  local a, b = jids.subids(subids)
  if who.subid == a or who.subid == b then partition_owner.renew(who) end
end

function partition_owner.is_fenced(flight)
  return call.partition_fence > 0 and tonumber(flight.token) < call.partition_fence
end
