-- What a reply tells the caller to send or to do.
-- CALL: made = {}
local notices = {}

-- Adds a notice: its kind, and its values.
function notices.tell(notice)
  call.notices_made[#call.notices_made + 1] = notice
end
