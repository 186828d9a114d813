-- Plain partitions: without any policy, and with nothing in a rare key. A call that expects one passes only the keys that its operation
-- uses there, since each key costs Redis time. The first step of the operation finds out whether the partition is plain.
local plain = {USUAL = {revision = 1, lock_ms = 1, max_deliveries = 1, dead_letters = 1, journal_max = 1, cursor = 1, tail = 1, token = 1, answers_since = 1, result_ms = 1, retry_delay = 1}}

local function is_plain()
  for field in pairs(call.partition_before) do
    if not (plain.USUAL[field] or sessions.is_one(field)) then return false end
  end
  return not rare_keys.any()
end

-- Returns nil when the operation may go on, else the reply that asks for all keys. `usual` tells whether the call itself asks for no policy.
function plain.check(usual)
  if #key < KEY[0] and not (usual and is_plain()) then return {'wide'} end
  return nil
end
